"""The identity providers of `auth.jwt`: their keys, which outlive reloads, and the callers they vouch for."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.auth.authenticate import single_key
from gateway.config import model as cfg
from gateway.config.problems import Problem
from gateway.core.call import Credentials
from gateway.core.caller import Caller
from gateway.core.clock import Clock
from gateway.http.client.tls import BadCertificatesError, client_context
from gateway.http.ticker import Ticker

# The library for tokens takes tens of milliseconds to import, and most gateways have no such provider.
if TYPE_CHECKING:
    from gateway.auth.jwks_store import Fetch, JwksStore
    from gateway.auth.signed_tokens import SignedTokens

_REFRESH_URL_S: Final = 300.0
_REFRESH_FILE_S: Final = 5.0

_Place = tuple[str | None, str | None, str | None]


def problems(config: cfg.Config) -> Iterator[Problem]:
    """A problem for each `ca_file` and `jwks_file` that cannot be used."""
    for i, provider in enumerate(config.auth.jwt):
        path = f"auth.jwt[{i}]"
        if provider.jwks_file is not None and (problem := _file_problem(provider.jwks_file)) is not None:
            yield Problem(f"{path}.jwks_file", problem)
        if provider.jwks_url is not None and provider.ca_file is not None:
            try:
                client_context(provider.jwks_url, provider.ca_file)
            except OSError as error:
                yield Problem(f"{path}.ca_file", f"cannot be read: {error.strerror or error}")
            except BadCertificatesError as error:
                yield Problem(f"{path}.ca_file", str(error))


def _file_problem(path: str) -> str | None:
    from gateway.auth.signing_keys import NoSigningKeysError, SigningKeys

    try:
        SigningKeys.parse(Path(path).read_bytes())
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except NoSigningKeysError as error:
        return str(error)
    return None


class IdentityProviders:
    """The keys of all providers of one process, by where they come from."""

    def __init__(self, ticker: Ticker, clock: Clock) -> None:
        self._ticker = ticker
        self._clock = clock
        self._stores: dict[_Place, JwksStore] = {}

    async def prepare(self, config: cfg.Config) -> None:
        """Read the keys of new providers, as far as they answer now; further tries follow in the background."""
        new = {_place(one): one for one in config.auth.jwt if _place(one) not in self._stores}
        made = {place: self._store(one) for place, one in new.items()}
        await asyncio.gather(*(store.refresh() for store in made.values()))
        for store in made.values():
            self._ticker.add(store)
        self._stores |= made

    def tokens(
        self,
        config: cfg.Config,
        callers_of: Callable[[cfg.KeyConfig], Callable[[str, str], Caller]],
        unix: Callable[[float], float],
    ) -> "SignedTokens | None":
        """What authenticates tokens by this config; None without providers. Providers that are gone are let go.

        `callers_of(key)` makes callers, by name and label, with the rights of a key.
        """
        used = {_place(one) for one in config.auth.jwt}
        for place in [place for place in self._stores if place not in used]:
            self._ticker.discard(self._stores.pop(place))
        if not used:
            return None
        from gateway.auth.signed_tokens import SignedTokens, TokenProvider
        from gateway.auth.token_verifier import TokenVerifier

        keys = {key.name: key for key in config.keys}
        providers = [
            TokenProvider(
                one.name,
                TokenVerifier(one.issuer, one.audience, one.algorithms),
                self._stores[_place(one)],
                one.key_from,
                one.groups_from,
                {group: callers_of(keys[key]) for group, key in one.map.items()},
            )
            for one in config.auth.jwt
        ]
        return SignedTokens(providers, unix)

    async def learn_signer(self, tokens: "SignedTokens", credentials: Credentials, now: float) -> bool:
        """Read the keys of the provider that a refused token is from, if that may help; returns whether they were."""
        token = single_key(credentials)
        provider = tokens.unknown_signer(token, now) if isinstance(token, str) else None
        return provider is not None and await provider.source.learn(now)

    async def close(self) -> None:
        """Stop reading keys."""
        await asyncio.gather(*(store.close() for store in self._stores.values()))

    def _store(self, provider: cfg.JwtConfig) -> "JwksStore":
        from gateway.auth.jwks_store import JwksStore

        refresh_s = _REFRESH_URL_S if provider.jwks_file is None else _REFRESH_FILE_S
        return JwksStore(provider.name, fetch_of(provider), refresh_s, self._clock)


def fetch_of(provider: cfg.JwtConfig) -> "Fetch":
    """Reads the provider's key set from where it is."""
    from gateway.http.client import jwks

    if provider.jwks_file is not None:
        return partial(jwks.read_file, provider.jwks_file)
    return partial(jwks.fetch, provider.jwks_url or "", provider.ca_file)


def _place(provider: cfg.JwtConfig) -> _Place:
    return provider.jwks_url, provider.jwks_file, provider.ca_file
