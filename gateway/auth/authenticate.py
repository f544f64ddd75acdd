"""Authentication by API key: a lookup by SHA-256 digest, behind a cache of headers that held a correct key.

Timing leaks nothing about a key. The digest of a guess is unrelated to the digest of any key, and the final
comparison is constant-time as well. The header cache is a dict, which compares strings only when their hashes
are equal, and those are randomized. A missing key, a wrong key and a malformed header get the same answer.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from gateway.core.call import Call, Credentials
from gateway.core.caller import Caller
from gateway.core.errors import INVALID_API_KEY, Rejection

LONGEST_KEY: Final = 512
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


class Authenticate:
    """Gate: sets the caller. Without configured keys every request is anonymous."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        """`callers` maps the SHA-256 digest of each key to its owner."""
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
        key = _single_key(credentials)
        if isinstance(key, Rejection):
            return key
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        expected, caller = self._by_digest.get(digest, (b"", ANONYMOUS))
        if not hmac.compare_digest(digest, expected):
            return UNAUTHENTICATED
        call.caller = caller
        if cacheable and len(self._by_header) < _MAX_CACHED_HEADERS:
            self._by_header[credentials.authorization] = caller
        return None


def _single_key(credentials: Credentials) -> str | Rejection:
    """The key that all of a request's credentials agree on."""
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
    return key if key and len(key) <= LONGEST_KEY else UNAUTHENTICATED
