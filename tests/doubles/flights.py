"""Waits for callers who share an upstream call, while it is under way."""

from doubles.gateway import InProcessGateway
from doubles.waiting import eventually


async def joined(gateway: InProcessGateway, calls: int) -> None:
    """Waits until so many calls have joined one that somebody else began and is still there."""
    flights = gateway._gateway._pipelines.caches._flights
    await eventually(
        lambda: sum(max(0, len(one.waiters) - 1) for one in flights._in_flight.values()) == calls,
        f"{calls} calls have joined others",
    )
