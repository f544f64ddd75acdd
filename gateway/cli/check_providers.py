"""`sluice check --connect`: asks every identity provider for its public keys, as the gateway does."""

import asyncio
from typing import NamedTuple

from gateway.assembly.identity import fetch_of
from gateway.config.model import Config, JwtConfig


class ProviderFinding(NamedTuple):
    """The result for one provider, in one line."""

    place: str
    good: bool
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


async def ask_providers(config: Config) -> list[ProviderFinding]:
    """Ask all providers at the same time; findings in the config's order."""
    return list(await asyncio.gather(*(_ask(f"auth.jwt[{i}]", one) for i, one in enumerate(config.auth.jwt))))


async def _ask(place: str, provider: JwtConfig) -> ProviderFinding:
    # The library for tokens is imported only where providers are configured.
    from gateway.auth.jwks_store import KeysUnavailableError
    from gateway.auth.signing_keys import NoSigningKeysError, SigningKeys

    try:
        keys = SigningKeys.parse(await fetch_of(provider)())
    except KeysUnavailableError as error:
        return ProviderFinding(place, False, str(error))
    except NoSigningKeysError as error:
        return ProviderFinding(place, False, f"what its key set's address answers {error}")
    missing = [name for name in provider.algorithms if not keys.matching(None, name)]
    if len(missing) == len(provider.algorithms):
        return ProviderFinding(place, False, f"has no key for {', '.join(missing)}; check algorithms")
    return ProviderFinding(place, True, f"ok, {keys.count} signing key{'' if keys.count == 1 else 's'}")
