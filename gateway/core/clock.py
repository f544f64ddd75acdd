"""The gateway's clocks. Policies receive `now` as an argument and never read a clock."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds."""

monotonic: Clock = time.monotonic
"""The process's monotonic clock; the event loop's `time()` reads the same one."""

unix: Clock = time.time
"""Wall-clock seconds since 1970, which may jump; for dates, never for durations."""


def unix_now() -> int:
    """Whole wall-clock seconds since 1970."""
    return int(time.time())
