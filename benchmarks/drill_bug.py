"""`python -m benchmarks.drill_bug serve ...`: the gateway with a bug that prompts about `the bug` trigger."""

import sys

from benchmarks.arguments import arguments
from gateway.cli.main import main
from gateway.wire.openai import peek as openai

BAIT = "the bug"


def _broken(body: bytes, peek: object = openai.peek_request) -> object:
    if BAIT.encode() in body:
        raise RuntimeError("a bug, made for the drill")
    assert callable(peek)
    return peek(body)


if __name__ == "__main__":
    (command,) = arguments(__doc__, command=list)
    openai.peek_request = _broken
    sys.exit(main(command))
