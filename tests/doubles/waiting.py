"""Polls for a condition that nothing signals."""

import asyncio
from collections.abc import Callable


async def eventually(true: Callable[[], bool], what: str, within: float = 20.0) -> None:
    """Poll until `true()`; after `within` seconds an AssertionError names `what`."""
    try:
        async with asyncio.timeout(within):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within} s: {what}") from None
