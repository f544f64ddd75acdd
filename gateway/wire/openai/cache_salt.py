"""Sets vLLM's `cache_salt` in a request: cached prefixes are shared only between requests of one salt."""

import hashlib
from functools import lru_cache

from gateway.wire.json.members import Edit, members

_NAME = "cache_salt"


@lru_cache(maxsize=4096)
def salt_of(tenant: str) -> bytes:
    """A tenant's salt as a JSON string: stable, and it does not reveal the tenant's name."""
    return b'"%b"' % hashlib.sha256(b"sluice cache_salt " + tenant.encode()).hexdigest()[:32].encode()


def salt_edits(body: bytes, salt: bytes) -> list[Edit]:
    """The edits that give a request (one valid JSON object, not empty) this salt in place of any other."""
    edits = []
    if b'"cache_salt"' in body or b"\\u00" in body:
        edits = [(member.value, member.end, salt) for member in members(body) if member.called(_NAME)]
    brace = body.find(b"{") + 1
    return edits or [(brace, brace, b'"cache_salt":%b,' % salt)]
