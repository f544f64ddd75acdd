"""Authentication by API key: a lookup by SHA-256 digest, behind a cache of headers that held a correct key. What is
no key may be a token of an identity provider.

Timing leaks nothing about a key. The digest of a guess is unrelated to the digest of any key, and the final
comparison is constant-time as well. The header cache is a dict, which compares strings only when their hashes
are equal, and those are randomized. A missing key, a wrong key, a refused token and a malformed header get the same
answer.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from gateway.core.call import Call, Credentials
from gateway.core.caller import Caller
from gateway.core.errors import INVALID_API_KEY, Rejection

LONGEST_KEY: Final = 512
LONGEST_TOKEN: Final = 16 * 1024
_MAX_CACHED_HEADERS: Final = 4096

UNAUTHENTICATED: Final = Rejection(
    INVALID_API_KEY,
    "Missing or incorrect API key. Send one of this gateway's keys as `Authorization: Bearer KEY`.",
    headers=(("www-authenticate", "Bearer"),),
)
CONFLICTING_KEYS: Final = Rejection(
    INVALID_API_KEY,
    "The request carries two different API keys. Send one, as `Authorization: Bearer KEY`.",
    headers=(("www-authenticate", "Bearer"),),
)

ANONYMOUS: Final = Caller("anonymous", None)


class RefusedTokenError(Exception):
    """The token proves nothing. The message says why, from a closed set: for the log, never for the client."""


class TokenCallers(Protocol):
    """Identifies callers by the tokens of identity providers."""

    def caller(self, token: str, digest: bytes, now: float) -> Caller:
        """Who sends this token, whose SHA-256 is `digest`; RefusedTokenError if it proves nothing."""


class Authenticate:
    """Gate: sets the caller. Without configured keys every request is anonymous."""

    def __init__(self, callers: Mapping[bytes, Caller], tokens: TokenCallers | None = None) -> None:
        """`callers` maps the SHA-256 digest of each key to its owner."""
        self._tokens = tokens
        self._longest = LONGEST_KEY if tokens is None else LONGEST_TOKEN
        self._by_digest = {digest: (digest, caller) for digest, caller in callers.items()}
        # Only requests whose `authorization` is their single credential enter the cache.
        self._by_header: dict[str | None, Caller] = {}

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Set `call.caller`, or reject with 401."""
        if not self._by_digest:
            call.caller = ANONYMOUS
            return None
        credentials = call.request.credentials
        cacheable = credentials.x_api_key is None and credentials.api_key is None
        if cacheable and (cached := self._by_header.get(credentials.authorization)) is not None:
            call.caller = cached
            return None
        key = single_key(credentials)
        if isinstance(key, Rejection):
            return key
        if len(key) > self._longest:
            return UNAUTHENTICATED
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        expected, caller = self._by_digest.get(digest, (b"", ANONYMOUS))
        if len(key) > LONGEST_KEY or not hmac.compare_digest(digest, expected):
            return UNAUTHENTICATED if self._tokens is None else self._admit_token(self._tokens, call, key, digest, now)
        call.caller = caller
        if cacheable and len(self._by_header) < _MAX_CACHED_HEADERS:
            self._by_header[credentials.authorization] = caller
        return None

    def _admit_token(self, tokens: TokenCallers, call: Call, token: str, digest: bytes, now: float) -> Rejection | None:
        try:
            call.caller = tokens.caller(token, digest, now)
        except RefusedTokenError as error:
            return replace(UNAUTHENTICATED, logged=f"No key, and refused as a token: {error}.")
        return None


def single_key(credentials: Credentials) -> str | Rejection:
    """The key or token that all of a request's credentials agree on, or the rejection of a request without one."""
    bearer = None
    if credentials.authorization:
        scheme, _, token = credentials.authorization.partition(" ")
        # Another scheme holds no key of this gateway, but still conflicts with a key in another header.
        bearer = token.strip() if scheme.lower() == "bearer" else ""
    key = bearer
    for header in (credentials.x_api_key, credentials.api_key):
        if header and key is not None and header != key:
            return CONFLICTING_KEYS
        key = header or key
    return key or UNAUTHENTICATED
