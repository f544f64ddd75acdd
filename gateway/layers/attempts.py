"""Calls to upstreams until one succeeds, or no further one is worth it.

Nothing is tried again once a byte has gone to the client: a Failure only comes before. Every extra call is
paid for from the budget of the upstream that failed, so that a dead one cannot multiply the load; how long
all of it may take is bounded by the call's one deadline.
"""

from gateway.call import Call, Handler, Layer, Reply
from gateway.errors import Failure, Refusal
from gateway.layers.attempt import Attempt
from gateway.layers.trial import Trial, poisonous
from gateway.policy.retry import client_retries


def attempts(attempt: Attempt) -> Layer:
    """The layer around one attempt. What goes on after a first one that failed is the `Trial`'s."""

    def layer(inner: Handler) -> Handler:
        async def handle(call: Call) -> Reply | Refusal:
            candidate, now = call.candidate, call.ready_at
            if candidate is None:
                raise AssertionError("the gates above set the candidate")
            refused = attempt.poison.refused(call.body, now)
            if refused is not None:
                return poisonous(refused)
            health = attempt.health[candidate.upstream]
            if not client_retries(call.headers.get("x-stainless-retry-count")):
                # Even where its breaker is open: else its probes, which may fail, could never be paid for.
                health.budget.earn(now)
            ticket = health.breaker.admits(now)
            if not ticket or (attempt.busy and attempt.busy.get(candidate, 0.0) > now):
                return await Trial(attempt, inner, call).blocked(ticket)
            try:
                reply = await attempt(inner, call, candidate, ticket)
            except Failure as failure:
                return await Trial(attempt, inner, call).failed(failure)
            return reply if isinstance(reply, Reply) else await Trial(attempt, inner, call).refused(reply)

        return handle

    return layer
