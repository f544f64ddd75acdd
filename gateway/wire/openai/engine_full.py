"""The words with which an engine's own admission refuses a call: it is full, not broken, and has done nothing.

vLLM's two (`--max-num-queued-reqs`, `--max-num-queued-tokens`), llama.cpp's for slots that are all taken, and
SGLang's for its queue (`--max-queued-requests`).
"""

import re
from typing import Final

_FULL: Final = re.compile(
    r"engine is currently busy and cannot accept new requests"
    r"|engine has reached its prefill token backlog limit"
    r"|no slot available"
    r"|request queue is full",
    re.IGNORECASE,
)
_SEARCHED: Final = 2000  # characters


def is_engine_full(message: str) -> bool:
    """Whether the message of a 503 says that an engine's own queue is full."""
    return _FULL.search(message[:_SEARCHED]) is not None
