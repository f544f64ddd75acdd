"""Arrivals of an open loop: calls start on time, finished or not the calls before them."""

import asyncio
import os
import threading
from collections.abc import Callable
from random import Random
from time import perf_counter, sleep


class Pacer:
    """Within its `with` block calls `due` in the running loop, `rate` times a second on average.

    The arrivals are a Poisson process, the same for every contender. A thread waits for them: the loop's own
    timers have a resolution of a millisecond and would send calls in bunches.
    """

    def __init__(self, rate: float, due: Callable[[], None]) -> None:
        self._rate, self._due = rate, due
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait)

    def __enter__(self) -> None:
        self._file = os.eventfd(0, os.EFD_NONBLOCK)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._wake)
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _wait(self) -> None:
        gaps = Random(1)
        at = perf_counter()
        while not self._over.is_set():
            at += gaps.expovariate(self._rate)
            sleep(max(0.0, at - perf_counter()))
            os.eventfd_write(self._file, 1)

    def _wake(self) -> None:
        for _ in range(os.eventfd_read(self._file)):
            self._due()
