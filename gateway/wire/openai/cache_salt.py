"""vLLM's `cache_salt` in a request's bytes: prefixes that it has computed are found again under it only."""

import hashlib
from functools import lru_cache

from gateway.wire.json.members import Edit, members

_NAME = "cache_salt"


@lru_cache(maxsize=4096)
def salt_of(tenant: str) -> bytes:
    """A tenant's salt as JSON: always the same, and not its name."""
    return b'"%b"' % hashlib.sha256(b"sluice cache_salt " + tenant.encode()).hexdigest()[:32].encode()


def salting(body: bytes, salt: bytes) -> list[Edit]:
    """The edits by which this request (one valid JSON object, not empty) has this salt and no other."""
    edits = []
    if b'"cache_salt"' in body or b"\\u00" in body:
        edits = [(one.value, one.end, salt) for one in members(body) if one.called(_NAME)]
    brace = body.find(b"{") + 1
    return edits or [(brace, brace, b'"cache_salt":%b,' % salt)]
