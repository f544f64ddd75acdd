"""One attempt: a request to one upstream, and what its end means for that upstream."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from random import Random
from typing import Final, NamedTuple

from gateway.core.call import Call, Candidate, FailedAttempt, Handler, Reply, TokenEstimate
from gateway.core.clock import Clock
from gateway.core.errors import CONNECT, LOCAL, RESET, TLS, Rejection, UpstreamFailure
from gateway.queueing.advertised_quota import Quotas
from gateway.resilience.circuit_breaker import CLOSED, CircuitBreaker
from gateway.resilience.classification import MODEL, PATH, classify
from gateway.resilience.holds import Holds
from gateway.resilience.poison_requests import PoisonRequests
from gateway.resilience.retry_budget import RetryBudget, client_retries
from gateway.resilience.upstream_breakers import UpstreamBreakers

_PAUSING: Final = ("rate_limited", "overloaded", "account", MODEL)
"""Reasons after which a model, or its upstream's account, is left out for a moment."""
_PAUSE_S: Final = 1.0
_ACCOUNT_PAUSE_S: Final = 30.0  # nobody mends a key, pays a bill or loads a model within a second
_MAX_PAUSE_S: Final = 60.0
_STREAM_RESULTS: Final = {"ok": "success", "client_gone": "ignore", "shed": "ignore"}


class RetryPolicy(NamedTuple):
    """At most `attempts` at a model's candidates. `base_s` and `max_s` bound the backoff, in seconds."""

    attempts: int
    base_s: float
    max_s: float


class UpstreamHealth(NamedTuple):
    """The state of one upstream; `total_s` is the longest that a request may take there, in seconds."""

    breakers: UpstreamBreakers
    budget: RetryBudget
    total_s: float


class RetryMetrics(NamedTuple):
    """Callbacks that count.

    `attempt(upstream, result)` returns a function that adds to that counter. `retry(upstream, reason)` counts
    a retry by the upstream that failed; `fallback(from_model, to_model)` a change of the model.
    """

    attempt: Callable[[str, str], Callable[[float], object]]
    retry: Callable[[str, str], None]
    fallback: Callable[[str, str], None]


class AttemptRunner:
    """Makes attempts and records their ends in circuit breakers and metrics."""

    def __init__(
        self,
        health: Mapping[str, UpstreamHealth],
        policy: RetryPolicy,
        metrics: RetryMetrics,
        clock: Clock,
        sleep: Callable[[float], Awaitable[object]],
        rng: Random,
        poison: PoisonRequests | None = None,
        estimate: Callable[[Call], TokenEstimate] | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """`poison` and `quotas` are shared by the generations of a process; `estimate` fills in
        `call.usage.estimate`.
        """
        self.health = health
        self.policy = policy
        self.metrics = metrics
        self.clock = clock
        self.sleep = sleep
        self.estimate = estimate
        self.rng = rng
        self.poison = poison if poison is not None else PoisonRequests()
        self.succeeded = {name: metrics.attempt(name, "success") for name in health}
        self.holds = Holds(quotas)

    def breaker(self, candidate: Candidate, endpoint: str) -> CircuitBreaker:
        """The breaker of a candidate's model at an endpoint."""
        return self.health[candidate.upstream].breakers.of(candidate.model, endpoint)

    def busy(self, call: Call, candidate: Candidate, now: float) -> bool:
        """Whether the candidate has asked for a pause, or has no quota for the call, so that another one goes first."""
        tokens = 1
        if self.estimate is not None and (candidate.upstream, candidate.model) in self.holds.quotas:
            estimate = call.usage.estimate or self.estimate(call)
            tokens = max(1, estimate.input + estimate.output)
        return self.holds.held(candidate, call.request.endpoint, tokens, now)

    async def __call__(
        self, inner: Handler, call: Call, candidate: Candidate, permit: int, *, again: bool
    ) -> Reply | Rejection:
        """Makes one attempt and returns `permit` to the breaker. Raises UpstreamFailure.

        `again`: this candidate has failed this call before.
        """
        attempts_before = call.attempts
        try:
            reply = await inner(call)
        except UpstreamFailure as failure:
            self.failed(call, candidate, permit, failure, again=again)
            raise
        except BaseException:
            self.left(call, candidate, permit, attempts_before)
            raise
        self.answered(call, candidate, permit, reply)
        return reply

    def answered(self, call: Call, candidate: Candidate, permit: int, reply: Reply | Rejection) -> None:
        """Records a complete answer, the beginning of a stream, or a rejection by the queue."""
        breakers, now = self.health[candidate.upstream].breakers, self.clock()
        model, endpoint = candidate.model, call.request.endpoint
        if not isinstance(reply, Reply):
            breakers.of(model, endpoint).record("none", now, permit)
        elif reply.stream is None:
            breakers.failures.answered(now)
            breakers.record_success(model, endpoint, now, permit)
            self.succeeded[candidate.upstream](1)
        else:
            probing = breakers.of(model, endpoint).state(now) != CLOSED
            if probing:  # a stream that has begun is proof enough: others need not wait for its end
                breakers.record_success(model, endpoint, now, permit)
            call.lease.hold(_StreamEnd(self, candidate, permit, recorded=probing))

    def left(self, call: Call, candidate: Candidate, permit: int, attempts_before: int) -> None:
        """Records that the client left, which says nothing about the upstream."""
        self.breaker(candidate, call.request.endpoint).record("none", self.clock(), permit)
        if call.attempts > attempts_before:
            self.metrics.attempt(candidate.upstream, "ignore")(1)

    def failed(
        self, call: Call, candidate: Candidate, permit: int, failure: UpstreamFailure, *, again: bool = False
    ) -> None:
        """Records a failed attempt."""
        classified, now = classify(failure), self.clock()
        breakers, model = self.health[candidate.upstream].breakers, candidate.model
        if classified.breaker_outcome == "failure" and not _known_failure(call, classified.reason, again):
            of_host = failure.cause in (CONNECT, TLS)
            breakers.record_failure(model, call.request.endpoint, now, permit, of_host=of_host)
        else:
            breakers.of(model, call.request.endpoint).record("none", now, permit)
        self.metrics.attempt(candidate.upstream, classified.result)(failure.sendings)
        reason = classified.reason if failure.status is None else f"{classified.reason} {failure.status}"
        sentence = failure.logged or failure.message
        timing = call.timing
        call.failures += (
            FailedAttempt(
                candidate.upstream, model, reason, sentence, timing.sent_at, now, timing.queue_s, timing.ready_at
            ),
        )
        if classified.result != "ignore" and failure.cause != LOCAL:
            breakers.failures.failed(now, sentence)
        if classified.reason in _PAUSING:
            pause_s = failure.retry_after
            if pause_s is None:
                pause_s = _ACCOUNT_PAUSE_S if classified.reason in ("account", MODEL) else _PAUSE_S
            until = now + min(pause_s, _MAX_PAUSE_S)
            if failure.account_trouble or failure.status == HTTPStatus.PAYMENT_REQUIRED:
                self.holds.hold_upstream(candidate, until)
            else:
                self.holds.hold_model(candidate, until)
        elif classified.reason == PATH:  # other endpoints may work
            self.holds.hold_model(candidate, now + _MAX_PAUSE_S, call.request.endpoint)
        call.attempts += failure.sendings - 1
        if failure.cause == RESET:
            for body in (call.request.body,) if call.batch is None else call.batch.source_bodies():
                self.poison.record_death(body, candidate.upstream, now, failure.sendings)


def _known_failure(call: Call, reason: str, again: bool) -> bool:
    """Whether a failure repeats that of the same request, retried by this gateway or by its client.

    One request whose content makes an engine fail must not open a breaker for all others.
    """
    if reason != "server_error":
        return False
    return again or client_retries(call.request.headers.get("x-stainless-retry-count")) > 0


class _StreamEnd:
    """Lease holder: records how a stream ended."""

    __slots__ = ("_attempt", "_candidate", "_permit", "_recorded")

    def __init__(self, attempt: AttemptRunner, candidate: Candidate, permit: int, *, recorded: bool) -> None:
        """`recorded`: the breaker has counted the beginning as a success."""
        self._recorded = recorded
        self._attempt = attempt
        self._candidate = candidate
        self._permit = permit

    def settle(self, call: Call, now: float) -> None:
        upstream, model = self._candidate.upstream, self._candidate.model
        result = _STREAM_RESULTS.get(call.response.outcome, "retryable")
        self._attempt.metrics.attempt(upstream, result)(1)
        breakers = self._attempt.health[upstream].breakers
        if result == "success":
            breakers.failures.answered(now)
        if result == "retryable":
            sentence = f"Upstream `{upstream}` did not finish a stream."
            if call.response.error is not None:
                sentence = call.response.error.logged or call.response.error.message
            timing, why = call.timing, call.response.outcome
            call.failures += (
                FailedAttempt(upstream, model, why, sentence, timing.sent_at, now, timing.queue_s, timing.ready_at),
            )
            breakers.failures.failed(now, sentence)
            breakers.record_failure(model, call.request.endpoint, now, self._permit)
        elif self._recorded:
            return
        elif result == "success":
            breakers.record_success(model, call.request.endpoint, now, self._permit)
        else:
            breakers.of(model, call.request.endpoint).record("none", now, self._permit)
