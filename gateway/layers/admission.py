"""Gates in a row: the first refusal ends the call, and every gate that admitted it is held by its lease."""

from collections.abc import Sequence

from gateway.call import Call, Gate, Handler, Layer, Reply
from gateway.clock import Clock
from gateway.errors import Refusal


def admit(gates: Sequence[Gate], call: Call, now: float) -> Refusal | None:
    """Ask the gates in order. A gate that refuses holds nothing."""
    for gate in gates:
        refusal = gate.admit(call, now)
        if refusal is not None:
            return refusal
        call.lease.hold(gate)
    return None


def admission(gates: Sequence[Gate], clock: Clock) -> Layer:
    """The layer of all gates that need the body."""

    def layer(inner: Handler) -> Handler:
        async def handle(call: Call) -> Reply | Refusal:
            refusal = admit(gates, call, clock())
            return refusal if refusal is not None else await inner(call)

        return handle

    return layer
