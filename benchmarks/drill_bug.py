"""`python -m benchmarks.drill_bug serve ...`: the gateway with a bug that prompts about `the bug` trigger."""

import sys
from collections.abc import Callable

from benchmarks.arguments import arguments
from gateway.cli.main import main
from gateway.core.endpoint import RequestHead
from gateway.core.errors import Rejection
from gateway.wire.openai.chat import CHAT

BAIT = "the bug"
Head = Callable[[bytes, str], RequestHead | Rejection]


def _broken(body: bytes, content_type: str, read: Head = CHAT.head) -> RequestHead | Rejection:
    if BAIT.encode() in body:
        raise RuntimeError("a bug, made for the drill")
    return read(body, content_type)


if __name__ == "__main__":
    (command,) = arguments(__doc__, command=list)
    CHAT.head = _broken
    sys.exit(main(command))
