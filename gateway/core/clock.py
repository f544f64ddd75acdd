"""The only place that reads a clock. Everything else receives `now` as an argument."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Answers monotonic seconds."""

monotonic: Clock = time.monotonic
"""The process's clock; the event loop's `time()` reads the same one."""


unix: Clock = time.time
"""Wall-clock seconds since 1970, which may jump; only to find out which day it is."""


def unix_now() -> int:
    """Wall-clock seconds since 1970, for what people read; never for measuring."""
    return int(time.time())
