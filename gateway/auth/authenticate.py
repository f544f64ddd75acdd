"""Who is calling: a key is looked up by its SHA-256, and a header that has held a right one is known again.

A look-up by digest takes the same time whichever prefix of a wrong key is right, because the digest of a
guess says nothing about the digest of a key; the final comparison is constant-time all the same. Nor does the
look-up of a header tell anything: a dict compares texts only where their hashes, which nobody outside can
foresee, are equal. A missing key, a wrong key and a malformed header get one and the same answer.
"""

import hashlib
import hmac
from collections.abc import Mapping

from gateway.core.call import Call, Credentials
from gateway.core.caller import Caller
from gateway.core.errors import INVALID_API_KEY, Rejection

LONGEST_KEY = 512
_MOST_KNOWN = 4096

UNAUTHENTICATED = Rejection(
    INVALID_API_KEY,
    "Missing or incorrect API key. Send one of this gateway's keys as `Authorization: Bearer KEY`.",
    headers=(("www-authenticate", "Bearer"),),
)
CONTRADICTION = Rejection(
    INVALID_API_KEY,
    "The request carries two different API keys. Send one, as `Authorization: Bearer KEY`.",
    headers=(("www-authenticate", "Bearer"),),
)

ANYBODY = Caller("anonymous", None)


class Authenticate:
    """Gate: names the caller. Without any configured key everybody may call."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        """`callers` maps the SHA-256 digest of each key to its owner."""
        self._by_digest = {digest: (digest, caller) for digest, caller in callers.items()}
        self._known: dict[str | None, Caller] = {}  # headers that have held a right key and nothing else

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Set `call.caller`, or refuse."""
        if not self._by_digest:
            call.caller = ANYBODY
            return None
        given = call.credentials
        alone = given.x_api_key is None and given.api_key is None
        if alone and (known := self._known.get(given.authorization)) is not None:
            call.caller = known
            return None
        key = _presented(given)
        if isinstance(key, Rejection):
            return key
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        right, caller = self._by_digest.get(digest, (b"", ANYBODY))
        if not hmac.compare_digest(digest, right):
            return UNAUTHENTICATED
        call.caller = caller
        if alone and len(self._known) < _MOST_KNOWN:
            self._known[given.authorization] = caller
        return None


def _presented(given: Credentials) -> str | Rejection:
    """The one key of a request."""
    bearer = None
    if given.authorization:
        scheme, _, token = given.authorization.partition(" ")
        # Another scheme holds no key of ours, but it is not the same as no header.
        bearer = token.strip() if scheme.lower() == "bearer" else ""
    key = bearer
    for other in (given.x_api_key, given.api_key):
        if other and key is not None and other != key:
            return CONTRADICTION
        key = other or key
    return key if key and len(key) <= LONGEST_KEY else UNAUTHENTICATED
