"""Callers that identity providers vouch for: from a JSON Web Token to the caller of its group or subject.

A group of the provider is mapped to a key of the config, whose models, class and limits hold. The caller has a name
of its own, for limits, the ledger and the cache, and the group as its label in metrics.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from gateway.auth.authenticate import RefusedTokenError
from gateway.auth.signing_keys import SigningKeys
from gateway.auth.token_verifier import LEEWAY_S, UNKNOWN_KEY, TokenVerifier, issuer_of
from gateway.core.caller import Caller

ANY_GROUP: Final = "*"
"""In the map: whoever has a valid token."""
MAX_CACHED_TOKENS: Final = 16_384
_LONGEST_SUBJECT: Final = 128
_MAX_GROUPS: Final = 1000


class KeySource(Protocol):
    """Where a provider's keys come from; `keys` is another object whenever they have changed."""

    keys: SigningKeys
    """As read last."""

    def learn(self, now: float) -> Awaitable[bool]:
        """Look for a key that is not known, unless that was just tried. Returns whether the keys have been read."""


class TokenProvider(NamedTuple):
    """One provider. `key_from` names the claim that tells callers apart, None: a group is one caller.

    `groups` maps a group to the function that makes its caller from a name and a label.
    """

    name: str
    verifier: TokenVerifier
    source: KeySource
    key_from: str | None
    groups_from: str
    groups: Mapping[str, Callable[[str, str], Caller]]


class _Seen(NamedTuple):
    """A token that was valid: who it names, with which keys, and until when (seconds since 1970)."""

    provider: TokenProvider
    group: str
    name: str
    keys: SigningKeys
    until: float


class SignedTokens:
    """The tokens of all providers of one config, with those seen before remembered by their hash."""

    def __init__(self, providers: Sequence[TokenProvider], unix: Callable[[float], float]) -> None:
        """`unix` turns monotonic seconds into seconds since 1970."""
        self._providers = providers
        self._unix = unix
        self._seen: dict[bytes, _Seen] = {}

    def caller(self, token: str, digest: bytes, now: float) -> Caller:
        """Who sends this token, whose SHA-256 is `digest`; RefusedTokenError if it proves nothing."""
        unix = self._unix(now)
        seen = self._seen.get(digest)
        if seen is None or seen.provider.source.keys is not seen.keys:
            seen = self._verified(token, unix)
            if len(self._seen) >= MAX_CACHED_TOKENS:
                del self._seen[next(iter(self._seen))]
            self._seen[digest] = seen
        elif unix >= seen.until:
            del self._seen[digest]
            raise RefusedTokenError("it has expired")
        return seen.provider.groups[seen.group](seen.name, f"{seen.provider.name}:{seen.group}")

    def caller_named(self, name: str) -> Caller | None:
        """The caller that had this name when it sent a token; None if its provider or group is gone."""
        for provider in self._providers:
            group = name.removeprefix(f"{provider.name}:")
            if group == name:
                continue
            if provider.key_from is not None:
                group = group.rpartition("/")[0]
            if group in provider.groups:
                return provider.groups[group](name, f"{provider.name}:{group}")
        return None

    def unknown_signer(self, token: str, now: float) -> TokenProvider | None:
        """The provider whose keys may have changed, if only its unknown signing key speaks against this token."""
        for provider in self._issued_by(token):
            try:
                provider.verifier.verify(token, provider.source.keys, self._unix(now))
            except RefusedTokenError as error:
                if str(error) == UNKNOWN_KEY:
                    return provider
        return None

    def _verified(self, token: str, unix: float) -> _Seen:
        refused = RefusedTokenError("no provider of `auth.jwt` has issued it")
        for provider in self._issued_by(token):
            keys = provider.source.keys
            try:
                claims = provider.verifier.verify(token, keys, unix)
                group, name = _identity(provider, claims)
            except RefusedTokenError as error:
                refused = error
            else:
                return _Seen(provider, group, name, keys, claims["exp"] + LEEWAY_S)
        raise refused

    def _issued_by(self, token: str) -> Iterator[TokenProvider]:
        issuer = issuer_of(token)
        return (one for one in self._providers if one.verifier.issuer == issuer)


def _identity(provider: TokenProvider, claims: Mapping[str, Any]) -> tuple[str, str]:
    """The first mapped group of these claims, and the caller's name."""
    held = _texts(_claim(claims, provider.groups_from))
    group = next((one for one in provider.groups if one in held or one == ANY_GROUP), None)
    if group is None:
        raise RefusedTokenError("none of its groups is in `map`")
    name = f"{provider.name}:{group}"
    if provider.key_from is None:
        return group, name
    subject = _claim(claims, provider.key_from)
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT or not subject.isprintable():
        raise RefusedTokenError("the claim that `key_from` names is missing or no short text")
    # Without a slash in the last part, no two identities get the same name.
    return group, f"{name}/{quote(subject, safe='@:+!$&=,;~ ')}"


def _claim(claims: Any, path: str) -> Any:
    """A claim by its name, or by the names on the way to it, joined by dots; None if there is none."""
    if not isinstance(claims, Mapping):
        return None
    if path in claims:
        return claims[path]
    parts = path.split(".")
    heads = ((".".join(parts[:count]), ".".join(parts[count:])) for count in range(1, len(parts)))
    return next((_claim(claims[head], rest) for head, rest in heads if head in claims), None)


def _texts(value: Any) -> frozenset[str]:
    values = value[:_MAX_GROUPS] if isinstance(value, list) else [value]
    return frozenset(one for one in values if isinstance(one, str))
