"""The fault upstream in a separate thread, for tests without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

from doubles.upstream import FaultUpstream


class ThreadedUpstream:
    """A FaultUpstream that a synchronous test may script and read between calls."""

    def __init__(self) -> None:
        self.upstream = FaultUpstream()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(self.upstream.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.wait(self.upstream.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine on the upstream's event loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)
