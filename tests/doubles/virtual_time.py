"""An event loop whose time does not pass but jumps: to the next timer, whenever nothing else is to do."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Jumping(selectors.SelectSelector):
    """Asked to sleep until the next timer it lets the loop's time jump there."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("all tasks wait, and no timer is set: this would hang for ever")
            self.loop.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds; it starts somewhere, as a monotonic clock does."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds."""
        return self.now


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run it to its end in virtual time, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
