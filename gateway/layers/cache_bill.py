"""What each caller of a shared upstream call is shown of it, and who of them pays."""

from gateway.call import Call
from gateway.policy.price import cost
from gateway.policy.spending import NOTHING, spent


def show(call: Call, ours: Call, *, first: bool) -> None:
    """What a caller's own call shows of the upstream call; its first token only once, for it is measured."""
    call.candidate, call.attempts, call.passing = ours.candidate, ours.attempts, ours.passing
    call.order = ours.order
    call.finish, call.batch_size, call.changed = ours.finish, ours.batch_size, ours.changed
    call.notes |= {name: value for name, value in ours.notes.items() if name not in call.notes}
    if first:
        call.sent_at, call.answered_at, call.first_token_at = (
            ours.sent_at,
            ours.answered_at,
            ours.first_token_at,
        )
        # Moved on where earlier attempts took a part of the time that is not the gateway's own.
        call.ready_at, call.queue_s = ours.ready_at, ours.queue_s
        call.estimate = ours.estimate
    elif ours.answered_at:
        # It may have come when that call had been sent, or even answered: of its time only its own part.
        call.sent_at = max(call.ready_at, ours.sent_at)
        call.ready_at = max(call.ready_at, min(ours.ready_at, call.sent_at))  # moved on there as well
        call.answered_at = max(call.sent_at, ours.answered_at)
        call.queue_s = min(ours.queue_s, call.sent_at - call.ready_at)


def pay(call: Call, ours: Call) -> None:
    """This caller's key is charged for it."""
    call.cached_by = ""
    call.tokens, call.generated, call.estimated = ours.tokens, ours.generated, ours.estimated
    call.cost, call.spent_before = ours.cost, ours.spent_before
    call.estimate = ours.estimate or call.estimate
    call.saved, call.saved_cost = ours.saved, ours.saved_cost


def spare(call: Call, ours: Call) -> None:
    """This one has it for nothing."""
    call.cached_by = "collapsed"
    call.tokens, call.cost, call.estimate = NOTHING, 0, None
    if ours.outcome == "ok" and ours.candidate is not None:
        price = ours.candidate.price
        call.saved = used = spent(ours)
        call.saved_cost = None if price is None else cost(used, price)
