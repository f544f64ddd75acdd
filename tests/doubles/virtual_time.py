"""An event loop in virtual time: when nothing is ready, it jumps to the next timer instead of waiting."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

Result = TypeVar("Result")
Params = ParamSpec("Params")


class _JumpingSelector(selectors.SelectSelector):
    """Advances the loop's time where a selector would sleep until the next timer."""

    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("all tasks wait, and no timer is set: this would hang for ever")
            self.loop.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` is virtual seconds; like a monotonic clock it does not begin at zero."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds."""
        return self.now


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in virtual time, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual(test: Callable[Params, Coroutine[Any, Any, None]]) -> Callable[Params, None]:
    """Make an async test one that runs in virtual time."""

    @functools.wraps(test)
    def runs(*args: Params.args, **kwargs: Params.kwargs) -> None:
        run(test(*args, **kwargs))

    return runs
