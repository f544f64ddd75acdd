"""Gates in a row: the first refusal ends the call; what the gates before it took is in the call's lease."""

from collections.abc import Sequence

from gateway.call import Call, Gate, Handler, Layer, Reply
from gateway.errors import Refusal


def admit(gates: Sequence[Gate], call: Call, now: float) -> Refusal | None:
    """Ask the gates in order."""
    for gate in gates:
        refusal = gate.admit(call, now)
        if refusal is not None:
            return refusal
    return None


def admission(gates: Sequence[Gate]) -> Layer:
    """The layer of all gates that need the body."""

    def layer(inner: Handler) -> Handler:
        async def handle(call: Call) -> Reply | Refusal:
            refusal = admit(gates, call, call.ready_at)
            return refusal if refusal is not None else await inner(call)

        return handle

    return layer
