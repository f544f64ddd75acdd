"""Limits that many processes share: reserved in Redis before a call goes on, settled when it is over."""

from collections.abc import Awaitable

from gateway.core.call import Call, Handler, Layer, Reply
from gateway.core.errors import LIMITS_UNAVAILABLE, Rejection
from gateway.limits.account import Denial
from gateway.limits.gate import HeldReservation, KeyLimitGate
from gateway.limits.shared_account import SharedAccount, Unavailable

UNAVAILABLE = Rejection(
    LIMITS_UNAVAILABLE,
    "The limits of this key cannot be checked at the moment, and the gateway is set up to refuse then.",
    retry_after=1.0,
)


def shared_limits(limit: KeyLimitGate) -> Layer:
    """The layer that does for shared accounts what the gate `Limit` does for those in memory."""

    def layer(inner: Handler) -> Handler:
        async def reserved(call: Call, account: SharedAccount) -> Reply | Rejection:
            refusal = limit.unpriced(call, account.limits)
            if refusal is not None:
                return refusal
            now = call.ready_at
            ask, day = limit.ask(call, account.limits), limit.day(now)
            outcome = await account.reserve(ask, day, now)
            while (
                isinstance(outcome, Denial)
                and (less := limit.cheaper_reservation(call, ask, outcome)) is not None
            ):
                ask, outcome = less, await account.reserve(less, day, now)
            if isinstance(outcome, Unavailable):
                return UNAVAILABLE
            if isinstance(outcome, Denial):
                return limit.refused(call, account.limits, outcome, now)
            call.lease.hold(HeldReservation(account, outcome))
            return await inner(call)

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            account = call.caller.account if call.caller is not None else None
            return reserved(call, account) if isinstance(account, SharedAccount) else inner(call)

        return handle

    return layer
