"""Attempts at upstreams until one succeeds or none is worth making.

Nothing is retried once a byte has gone to the client: an UpstreamFailure is only raised before. Every retry
is paid from the retry budget of the upstream that failed, so a dead upstream cannot multiply the load. The
call's deadline bounds all attempts together.
"""

from gateway.core.call import Call, Handler, Layer, Reply
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.resilience.attempt import AttemptRunner
from gateway.resilience.retry_budget import client_retries
from gateway.resilience.retry_loop import RetryLoop, suspended


def attempts(attempt: AttemptRunner) -> Layer:
    """The layer that makes the first attempt; `RetryLoop` makes further ones."""

    def layer(inner: Handler) -> Handler:
        # Every call runs through here, so the first attempt has no frame or wrapper of its own.
        async def handle(call: Call) -> Reply | Rejection:
            candidate, now = call.routing.candidate, call.timing.ready_at
            health, attempts_before = attempt.health[candidate.upstream], call.attempts
            if call.timing.sent_at:
                # A layer around this one sends it again, to another model: it is no new request.
                now, call.timing.sent_at, call.timing.answered_at = attempt.clock(), 0.0, 0.0
            elif (sent := call.request.headers.get("x-stainless-retry-count")) is None or not client_retries(sent):
                # Even while the breaker is open, or nothing would pay for the retries of failed probes.
                health.budget.deposit(now)
            if now < attempt.poison.suspending_until:
                seconds = attempt.poison.suspended_for(call.request.body, now)
                if seconds is not None:
                    return suspended(seconds)
            try:
                breaker = health.breakers.scopes[candidate.model, call.request.endpoint]
            except KeyError:
                breaker = health.breakers.of(candidate.model, call.request.endpoint)
            permit = breaker.acquire(now)
            holds = attempt.holds
            if not permit or ((holds.due or holds.quotas) and attempt.busy(call, candidate, now)):
                return await RetryLoop(attempt, inner, call).on_breaker_open(permit)
            try:
                reply = await inner(call)
            except UpstreamFailure as failure:
                attempt.failed(call, candidate, permit, failure)
                return await RetryLoop(attempt, inner, call).on_failure(failure)
            except BaseException:
                attempt.left(call, candidate, permit, attempts_before)
                raise
            if type(reply) is Reply and reply.stream is None:
                now = call.timing.answered_at or attempt.clock()
                breaker.record("success", now, permit)
                if health.breakers.troubled:
                    health.breakers.answered(breaker, now)
                failures = health.breakers.failures
                failures.answered_at = now
                if failures.unanswered:
                    failures.answered(now)
                attempt.succeeded[candidate.upstream](1)
                return reply
            attempt.answered(call, candidate, permit, reply)
            return reply if isinstance(reply, Reply) else await RetryLoop(attempt, inner, call).on_queue_rejected(reply)

        return handle

    return layer
