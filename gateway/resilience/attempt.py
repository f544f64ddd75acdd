"""One call to one upstream, and what its end says of the upstream."""

from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final, NamedTuple

from gateway.core.call import Call, Candidate, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import RESET, Rejection, UpstreamFailure
from gateway.resilience.circuit_breaker import CLOSED, CircuitBreaker
from gateway.resilience.classification import PATH, classify
from gateway.resilience.poison_requests import PoisonRequests
from gateway.resilience.retry_budget import RetryBudget

_BUSY: Final = ("rate_limited", "overloaded", "account")
_BUSY_S: Final = 1.0
_LONGEST_BUSY_S: Final = 60.0
_ENDED = {"ok": "success", "client_gone": "ignore", "shed": "ignore"}


class RetryPolicy(NamedTuple):
    """`attempts` calls to the candidates of a model; the pauses between two to the same one, in seconds."""

    attempts: int
    base_s: float
    max_s: float


class UpstreamHealth(NamedTuple):
    """What is remembered of one upstream, and the whole time that it has for a call, in seconds."""

    breaker: CircuitBreaker
    budget: RetryBudget
    total_s: float


class RetryMetrics(NamedTuple):
    """`attempt(upstream, verdict)` gives what counts such attempts, and takes how many.

    The others are told of each extra call (upstream that failed, reason) and of each fallback.
    """

    attempt: Callable[[str, str], Callable[[float], object]]
    retry: Callable[[str, str], None]
    fallback: Callable[[str, str], None]


class AttemptRunner:
    """Makes attempts and tells breakers, budgets and metrics how they ended."""

    def __init__(
        self,
        health: Mapping[str, UpstreamHealth],
        rules: RetryPolicy,
        counts: RetryMetrics,
        clock: Clock,
        sleep: Callable[[float], Awaitable[object]],
        rng: Random,
    ) -> None:
        self.health = health
        self.rules = rules
        self.counts = counts
        self.clock = clock
        self.sleep = sleep
        self.rng = rng
        self.poison = PoisonRequests()
        self.succeeded = {name: counts.attempt(name, "success") for name in health}
        self.not_before: dict[Candidate | tuple[Candidate, str], float] = {}  # if another one can be called

    def busy(self, candidate: Candidate, endpoint: str, now: float) -> bool:
        """Whether another one is better called, if one can be."""
        known = self.not_before
        return known.get(candidate, 0.0) > now or known.get((candidate, endpoint), 0.0) > now

    async def __call__(
        self, inner: Handler, call: Call, candidate: Candidate, ticket: int
    ) -> Reply | Rejection:
        """One call to one upstream, its end told to the upstream's breaker. Raises Failure."""
        before = call.attempts
        try:
            reply = await inner(call)
        except UpstreamFailure as failure:
            self.failed(call, candidate, ticket, failure)
            raise
        except BaseException:
            self.left(call, candidate, ticket, before)
            raise
        self.answered(call, candidate, ticket, reply)
        return reply

    def answered(self, call: Call, candidate: Candidate, ticket: int, reply: Reply | Rejection) -> None:
        """There is an answer: a whole one, a stream's beginning, or that it has not been sent."""
        health, now = self.health[candidate.upstream], self.clock()
        if not isinstance(reply, Reply):
            health.breaker.record("none", now, ticket)
        elif reply.stream is None:
            health.breaker.record("success", now, ticket)
            self.succeeded[candidate.upstream](1)
        else:
            probing = health.breaker.state(now) != CLOSED
            if probing:  # it has begun, and need not end before others may go
                health.breaker.record("success", now, ticket)
            call.lease.hold(_Streaming(self, candidate, ticket, told=probing))

    def left(self, call: Call, candidate: Candidate, ticket: int, attempts_before: int) -> None:
        """Its client is gone, which tells nothing of the upstream; it may not have been sent at all."""
        self.health[candidate.upstream].breaker.record("none", self.clock(), ticket)
        if call.attempts > attempts_before:
            self.counts.attempt(candidate.upstream, "ignore")(1)

    def failed(self, call: Call, candidate: Candidate, ticket: int, failure: UpstreamFailure) -> None:
        """Tell all who have to know of it."""
        judgement, now = classify(failure), self.clock()
        self.health[candidate.upstream].breaker.record(judgement.breaker_outcome, now, ticket)
        self.counts.attempt(candidate.upstream, judgement.result)(1)
        if judgement.reason in _BUSY:
            pause_s = _BUSY_S if failure.retry_after is None else failure.retry_after
            self.not_before[candidate] = now + min(pause_s, _LONGEST_BUSY_S)
        elif judgement.reason == PATH:  # it may serve every other endpoint
            self.not_before[candidate, call.endpoint] = now + _LONGEST_BUSY_S
        if failure.cause == RESET:
            for body in (call.body,) if call.batch is None else call.batch.source_bodies():
                self.poison.died(body, candidate.upstream, now)


class _Streaming:
    """Holder: judges a stream when it has ended."""

    __slots__ = ("_attempt", "_candidate", "_ticket", "_told")

    def __init__(self, attempt: AttemptRunner, candidate: Candidate, ticket: int, *, told: bool) -> None:
        """`told`: the breaker has heard of its good beginning."""
        self._told = told
        self._attempt = attempt
        self._candidate = candidate
        self._ticket = ticket

    def settle(self, call: Call, now: float) -> None:
        upstream = self._candidate.upstream
        verdict = _ENDED.get(call.outcome, "retryable")
        self._attempt.counts.attempt(upstream, verdict)(1)
        breaker = self._attempt.health[upstream].breaker
        if verdict == "retryable":
            breaker.record("failure", now, self._ticket)
        elif not self._told:
            breaker.record("success" if verdict == "success" else "none", now, self._ticket)
