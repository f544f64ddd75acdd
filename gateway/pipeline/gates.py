"""Gates in a row: the first refusal ends the call; what the gates before it took is in the call's lease."""

from collections.abc import Awaitable, Sequence

from gateway.core.call import Call, Gate, Handler, Layer, Reply
from gateway.core.errors import Rejection


def admit(gates: Sequence[Gate], call: Call, now: float) -> Rejection | None:
    """Ask the gates in order."""
    for gate in gates:
        refusal = gate.admit(call, now)
        if refusal is not None:
            return refusal
    return None


async def _told(refusal: Rejection) -> Rejection:
    return refusal


def admission(gates: Sequence[Gate]) -> Layer:
    """The layer of all gates that need the body."""

    def layer(inner: Handler) -> Handler:
        # Not a coroutine itself: there is nothing to wait for, and one frame less to resume for each call.
        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            refusal = admit(gates, call, call.ready_at)
            return inner(call) if refusal is None else _told(refusal)

        return handle

    return layer
