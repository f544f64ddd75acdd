"""Runs gates in a row: the first rejection ends the call, whose lease releases what earlier gates took."""

from collections.abc import Awaitable, Sequence

from gateway.core.call import Call, Gate, Handler, Layer, Reply
from gateway.core.errors import Rejection


def admit(gates: Sequence[Gate], call: Call, now: float) -> Rejection | None:
    """The rejection of the first gate that rejects the call, or None."""
    for gate in gates:
        rejection = gate.admit(call, now)
        if rejection is not None:
            return rejection
    return None


async def _resolved(rejection: Rejection) -> Rejection:
    return rejection


def admission(gates: Sequence[Gate]) -> Layer:
    """The layer that runs all gates that need the body."""

    def layer(inner: Handler) -> Handler:
        # Not a coroutine: gates never wait, and a coroutine would add a frame to every call.
        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            rejection = admit(gates, call, call.timing.ready_at)
            return inner(call) if rejection is None else _resolved(rejection)

        return handle

    return layer
