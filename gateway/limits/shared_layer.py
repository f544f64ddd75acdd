"""The layer for limits shared through Redis: reserved before a call goes on, settled when it ends."""

from collections.abc import Awaitable

from gateway.core.call import Call, Handler, Layer, LimitUse, Reply
from gateway.core.errors import LIMITS_UNAVAILABLE, Rejection
from gateway.limits.account import Denial
from gateway.limits.key_limit_gate import HeldReservation, KeyLimitGate
from gateway.limits.shared_account import SharedAccount, Unavailable

UNAVAILABLE = Rejection(
    LIMITS_UNAVAILABLE,
    "The limits of this key cannot be checked at the moment, and the gateway is set up to refuse then.",
    retry_after=1.0,
)


def shared_limits(gate: KeyLimitGate) -> Layer:
    """The layer that does for shared accounts what `KeyLimitGate` does for accounts in memory."""

    def layer(inner: Handler) -> Handler:
        async def reserve(call: Call, account: SharedAccount) -> Reply | Rejection:
            rejection = gate.unpriced(call, account.limits)
            if rejection is not None:
                return rejection
            now = call.timing.ready_at
            request, day = gate.request(call, account.limits), gate.day(now)
            before = account.status(now) if gate.inspected else None
            outcome = await account.reserve(request, day, now)
            while (
                isinstance(outcome, Denial)
                and (cheaper := gate.cheaper_reservation(call, request, outcome)) is not None
            ):
                request, outcome = cheaper, await account.reserve(cheaper, day, now)
            if isinstance(outcome, Unavailable):
                return UNAVAILABLE
            if isinstance(outcome, Denial):
                return gate.reject(call, account, outcome, now, request)
            if before is not None:
                call.usage.reserved = LimitUse(outcome.tokens, outcome.cost, before)
            call.lease.hold(HeldReservation(account, outcome))
            return await inner(call)

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            account = call.caller.account
            return reserve(call, account) if isinstance(account, SharedAccount) else inner(call)

        return handle

    return layer
