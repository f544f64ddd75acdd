"""Calls to upstreams until one succeeds, or no further one is worth it.

Nothing is tried again once a byte has gone to the client: a Failure only comes before. Every extra call is
paid for from the budget of the upstream that failed, so that a dead one cannot multiply the load; how long
all of it may take is bounded by the call's one deadline.
"""

from gateway.core.call import Call, Handler, Layer, Reply
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.resilience.attempt import AttemptRunner
from gateway.resilience.retry_budget import client_retries
from gateway.resilience.retry_loop import RetryLoop, poisonous


def attempts(attempt: AttemptRunner) -> Layer:
    """The layer around one attempt. What goes on after a first one that failed is the `Trial`'s."""

    def layer(inner: Handler) -> Handler:
        # Every call runs through it, so the first attempt has no frame of its own, as later ones do.
        async def handle(call: Call) -> Reply | Rejection:
            candidate, now = call.candidate, call.ready_at
            if candidate is None:
                raise AssertionError("the gates above set the candidate")
            health, before = attempt.health[candidate.upstream], call.attempts
            if call.sent_at:
                # It has been sent before, and goes another way now: no new request, and later than it came.
                now, call.sent_at, call.answered_at = attempt.clock(), 0.0, 0.0
            elif (sent := call.headers.get("x-stainless-retry-count")) is None or not client_retries(sent):
                # Even where its breaker is open: else its probes, which may fail, could never be paid for.
                health.budget.deposit(now)
            if now < attempt.poison.refusing_until:
                seconds = attempt.poison.refused(call.body, now)
                if seconds is not None:
                    return poisonous(seconds)
            ticket = health.breaker.acquire(now)
            if not ticket or (attempt.not_before and attempt.busy(candidate, call.endpoint, now)):
                return await RetryLoop(attempt, inner, call).on_breaker_open(ticket)
            try:
                reply = await inner(call)
            except UpstreamFailure as failure:
                attempt.failed(call, candidate, ticket, failure)
                return await RetryLoop(attempt, inner, call).on_failure(failure)
            except BaseException:
                attempt.left(call, candidate, ticket, before)
                raise
            if type(reply) is Reply and reply.stream is None:
                health.breaker.record("success", call.answered_at or attempt.clock(), ticket)
                attempt.succeeded[candidate.upstream](1)
                return reply
            attempt.answered(call, candidate, ticket, reply)
            return (
                reply
                if isinstance(reply, Reply)
                else await RetryLoop(attempt, inner, call).on_queue_rejected(reply)
            )

        return handle

    return layer
