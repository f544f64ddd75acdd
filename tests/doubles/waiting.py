"""Waits for a condition that nothing announces."""

import asyncio
from collections.abc import Callable


async def eventually(true: Callable[[], bool], what: str, within: float = 5.0) -> None:
    """Looks again and again; an AssertionError that says `what` after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within} s: {what}") from None
