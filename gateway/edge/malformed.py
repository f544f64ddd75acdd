"""What aiohttp's parser has not taken for a request, in words for the client who sent it."""

import re
from typing import Final

from aiohttp.http_exceptions import LineTooLong

MAX_HEADER_BYTES: Final = 32 * 1024
"""Of one line of a request's head."""

_REASON = re.compile(r"[A-Za-z][A-Za-z0-9 `/-]{1,80}")


def what_is_wrong(error: BaseException | None) -> str:
    """What and where, as far as the parser tells; nothing of the request itself, for keys may stand in it."""
    if isinstance(error, LineTooLong):
        return f"A line of the request's head is longer than {MAX_HEADER_BYTES // 1024} KiB."
    reason = _REASON.match(str(getattr(error, "message", "")))
    return f"The HTTP request is malformed{'' if reason is None else f': {reason[0].strip()}'}."
