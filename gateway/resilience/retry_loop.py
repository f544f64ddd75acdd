"""Further attempts after a first one that failed, was rejected by a queue, or found its circuit breaker open.

tenacity runs the loop. It asks `retry`, then `wait`, then `stop`; the retry budget is withdrawn in `stop`,
so a call that gives up pays nothing. Clock, jitter and sleep are injected: tenacity's waits draw from the
global generator and its stops read the system's clock, so none of them is used.
"""

import math
from typing import Final, Literal

from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception, retry_if_result

from gateway.core.call import Call, Candidate, Handler, Reply, Route, SkippedCandidate
from gateway.core.errors import (
    DEADLINE_IN_QUEUE,
    QUEUE_FULL,
    REQUEST_SUSPENDED,
    REQUEST_TOO_LARGE,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.queueing.spill_timer import MOVED
from gateway.resilience.attempt import AttemptRunner
from gateway.resilience.classification import PATH, Classification, classify
from gateway.resilience.retry_budget import client_retries, own_attempts, pause
from gateway.resilience.retry_plan import NextAttempt, RetryPlan
from gateway.routing.eligibility import affordable
from gateway.wire.openai.capabilities import needs
from gateway.wire.request_body import fields_of

_NO_SLOT: Final = (QUEUE_FULL, DEADLINE_IN_QUEUE, REQUEST_TOO_LARGE)
"""Rejections by the queue of one upstream: another upstream may have a slot."""


def suspended(seconds: float) -> Rejection:
    """Rejects a request that several engines died with."""
    return Rejection(
        REQUEST_SUSPENDED,
        "The engines that were given this request died. It is refused for a while, so that it does not "
        "take down more of them.",
        retry_after=seconds,
    )


class RetryLoop:
    """Attempts until there is a reply, a rejection, or the last failure, which is raised.

    `call.routing.candidate` is the upstream of the first attempt. A loop serves one call, through one of `on_...`.
    """

    def __init__(self, attempt: AttemptRunner, inner: Handler, call: Call) -> None:
        sent = client_retries(call.request.headers.get("x-stainless-retry-count"))
        self._attempt = attempt
        self._inner = inner
        self._call = call
        self._route: Route = call.routing.route
        self._plan = RetryPlan(call.routing.route, own_attempts(attempt.policy.attempts, sent), call.routing.candidates)
        self._retries = 0
        self._permit = 0  # from the breaker of the candidate picked last
        self._tried: set[Candidate] = set()
        self._needs: frozenset[str] | None = None  # read where a candidate declares its capabilities
        self._next: NextAttempt | None = None
        self._outcome: Reply | Rejection | UpstreamFailure | None = None  # of the latest attempt
        self._classified: Classification | None = None  # that outcome, if it is a failure
        self._skipped = False  # the next attempt is paid for, but its breaker opened during the pause
        self._unavailable: Rejection | None = None
        self._state: RetryCallState | None = None

    async def on_breaker_open(self, permit: int) -> Reply | Rejection:
        """The first candidate's breaker is open (`permit` is 0), or the candidate has asked for a pause.

        The call goes to a candidate of which neither is true, else to the paused one, else it probes an open
        breaker. A pause is no reason to use a fallback model.
        """
        now, first = self._attempt.clock(), self._candidate()
        self._next = self._plan.next(
            now, lambda candidate: candidate is not first and self._admits(candidate), fallbacks=not permit
        )
        if self._next is None and permit:
            self._permit, self._next = permit, NextAttempt(first, self._route, now)
        elif permit:
            self._attempt.breaker(first, self._call.request.endpoint).record("none", now, permit)
        rejection = self._probe(now) if self._next is None else None
        if self._next is None or self._next.candidate is not first:
            why: Literal["paused", "breaker_open"] = "paused" if permit else "breaker_open"
            self._call.routing.skipped += (SkippedCandidate(first.upstream, first.model, why),)
        return await self._run() if rejection is None else rejection

    async def on_queue_rejected(self, rejection: Rejection) -> Reply | Rejection:
        """The first candidate's queue has no slot. Another upstream's may have one."""
        self._outcome = rejection
        return await self._run()

    async def on_failure(self, failure: UpstreamFailure) -> Reply | Rejection:
        """The first attempt failed."""
        self._outcome = failure
        return await self._run()

    async def _run(self) -> Reply | Rejection:
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._worth_retrying) | retry_if_result(_no_slot),
            wait=self._pick_next,
            stop=self._out_of_options,
            before=self._remember,
            before_sleep=self._account_for,
            sleep=self._pause,
            reraise=True,
        )
        try:
            return await retrying(self._next_outcome)
        except RetryError as stopped:  # raised where the last outcome is a rejection
            return self._unavailable or stopped.last_attempt.result()
        finally:
            # These refer to each other; the call in them would live until the next full collection.
            retrying.iter_state.reset()
            self._outcome = None
            if self._state is not None:
                self._state.outcome = None
                self._state = None

    def _remember(self, state: RetryCallState) -> None:
        self._state = state

    async def _next_outcome(self) -> Reply | Rejection:
        """The outcome of the first attempt, made before this loop, then that of each further one."""
        if self._next is not None and not self._skipped:
            self._outcome = await self._send(self._next)
        # No local variable may hold a failure: its traceback holds this frame.
        if isinstance(self._outcome, UpstreamFailure):
            if not self._skipped:
                self._classified = classify(self._outcome)
                self._tried.add(self._candidate())
                self._call.routing.max_wait_s = math.inf  # from now on the plan decides where it may go
                seconds = self._attempt.poison.suspended_for(self._call.request.body, self._attempt.clock())
                if seconds is not None and self._worth_retrying(self._outcome):
                    return suspended(seconds)
            raise self._outcome
        if self._outcome is None:
            raise AssertionError("no attempt was made")
        return self._outcome

    async def _send(self, picked: NextAttempt) -> Reply | Rejection | UpstreamFailure:
        if picked.route is not self._route:
            self._attempt.metrics.fallback(self._route.name, picked.route.name)
        self._call.routing.candidate = picked.candidate
        try:
            return await self._attempt(
                self._inner,
                self._call,
                picked.candidate,
                self._permit,
                again=picked.candidate in self._tried,
            )
        except UpstreamFailure as failure:
            return failure

    # What tenacity asks, in this order.

    def _worth_retrying(self, error: BaseException) -> bool:
        """`retry` of a failure."""
        classified, batch = self._classified, self._call.batch
        if classified is None or not isinstance(error, UpstreamFailure):
            return False
        if classified.retry_scope == "overflow":
            # One of several merged requests is too long: each is sent by itself instead.
            return batch is None or len(batch.source_bodies()) == 1
        if classified.reason == PATH and self._call.request.endpoint.internal:
            return False  # the engine offered that before: each request is sent as its client sent it
        return classified.retry_scope != "never"

    def _pick_next(self, state: RetryCallState) -> float:
        """`wait`: picks the next candidate and returns the seconds until it may be called."""
        now, candidate = self._attempt.clock(), self._candidate()
        if self._outcome is MOVED:
            # It has left this queue for the first of `call.routing.candidates`, and may come back if that one fails.
            # Having given up its position, it must not be sent back to the end of the queue by chance.
            self._plan.order = self._call.routing.candidates
            self._next = self._plan.next(
                now,
                lambda target: target is not candidate and self._admits(target, last_resort=True),
                fallbacks=False,
            )
            if self._next is None and self._admits(candidate):
                self._next = NextAttempt(candidate, self._route, now)
            if self._next is None:
                self._unavailable = self._probe(now)
        else:
            if not self._skipped:
                self._record(candidate, now)
            self._next = self._plan.next(now, self._admits)
        return 0.0 if self._next is None else max(0.0, self._next.at - now)

    def _out_of_options(self, state: RetryCallState) -> bool:
        """`stop`: no candidate, no time, or no budget. Asked last, so that only a retry that happens pays."""
        picked, classified = self._next, self._fresh_failure()
        if picked is None or classified is None:
            return picked is None
        budget = self._attempt.health[self._candidate().upstream].budget
        if picked.at < self._deadline(picked.candidate) and (
            classified.retry_scope == "overflow" or budget.try_withdraw(self._attempt.clock())
        ):
            return False
        self._return_permit(picked.candidate)
        return True

    def _account_for(self, state: RetryCallState) -> None:
        """`before_sleep`: counts the retry; the failed attempt is the upstream's time, not the gateway's."""
        call, classified = self._call, self._fresh_failure()
        if classified is not None:
            self._attempt.metrics.retry(self._candidate().upstream, classified.reason)
        if call.timing.sent_at:
            call.timing.ready_at += self._attempt.clock() - call.timing.sent_at
            call.timing.sent_at = 0.0  # a client that leaves before the next attempt pays for none

    async def _pause(self, seconds: float) -> None:
        """`sleep`. The breaker's permit is not held meanwhile, so it may refuse afterwards."""
        self._skipped = False
        if seconds <= 0.0 or self._next is None:
            return
        attempt, candidate, begun = self._attempt, self._next.candidate, self._attempt.clock()
        self._return_permit(candidate)
        await attempt.sleep(seconds)
        self._call.timing.ready_at += attempt.clock() - begun
        if not self._admits(candidate):
            self._plan.exclude(candidate)
            self._skipped = True

    # What they decide by.

    def _fresh_failure(self) -> Classification | None:
        """The latest outcome where it is a failure that no retry has been paid for yet."""
        return self._classified if isinstance(self._outcome, UpstreamFailure) and not self._skipped else None

    def _record(self, candidate: Candidate, now: float) -> None:
        """Adds the latest outcome to the plan."""
        classified = self._fresh_failure()
        if classified is None:
            self._plan.exclude(candidate)
        elif classified.retry_scope == "overflow":
            self._plan.record_overflow(candidate)
        else:
            self._plan.record_failure(candidate, self._again_at(classified, now))

    def _probe(self, now: float) -> Rejection | None:
        """Every breaker is open: one call a second probes the upstream due first, others are rejected."""
        endpoint = self._call.request.endpoint
        candidate = min(self._plan.order, key=lambda each: self._attempt.breaker(each, endpoint).wait(now))
        breaker = self._attempt.breaker(candidate, endpoint)
        self._permit = breaker.acquire(now, last_resort=True)
        if self._permit:
            self._next = NextAttempt(candidate, self._route, now)
            return None
        message = f"Upstream `{candidate.upstream}` has failed repeatedly and is left alone for a moment."
        last = self._attempt.health[candidate.upstream].breakers.failures.sentence
        return Rejection(
            UPSTREAM_UNAVAILABLE,
            message,
            retry_after=max(0.001, breaker.wait(now)),
            logged=f"{message} Its last failure: {last}" if last else None,
        )

    def _again_at(self, classified: Classification, now: float) -> float | None:
        """When the upstream that failed may be called again; None is never."""
        if classified.retry_scope != "anywhere" or not isinstance(self._outcome, UpstreamFailure):
            return None
        policy, left_s = self._attempt.policy, self._deadline(self._candidate()) - now
        self._retries += 1
        seconds = pause(
            self._outcome.retry_after, self._retries, policy.base_s, policy.max_s, left_s, self._attempt.rng
        )
        return None if seconds is None else now + seconds

    def _deadline(self, candidate: Candidate) -> float:
        total_s = self._attempt.health[candidate.upstream].total_s
        return min(self._call.timing.deadline, self._call.timing.accepted_at + total_s)

    def _admits(self, candidate: Candidate, *, last_resort: bool = False) -> bool:
        breaker, now = self._attempt.breaker(candidate, self._call.request.endpoint), self._attempt.clock()
        if candidate not in self._tried and self._attempt.busy(self._call, candidate, now):
            return False
        if not affordable(self._call, candidate) or not self._capable(candidate) or not self._fits(candidate):
            return False
        self._permit = breaker.acquire(now, last_resort)
        return self._permit > 0

    def _capable(self, candidate: Candidate) -> bool:
        """Whether it has the capabilities that the request needs; the router checked no fallback."""
        if candidate.capabilities is None:
            return True
        if self._needs is None:
            self._needs = needs(fields_of(self._call.request))
        return self._needs <= candidate.capabilities

    def _fits(self, candidate: Candidate) -> bool:
        """Whether the prompt fits the window of a fallback's candidate; the router has checked its own."""
        window, estimate = candidate.context_window, self._attempt.estimate
        if (
            window is None
            or estimate is None
            or not self._call.request.endpoint.conversation
            or candidate in self._route.candidates
        ):
            return True
        return (self._call.usage.estimate or estimate(self._call)).input <= window

    def _return_permit(self, candidate: Candidate) -> None:
        """The candidate picked last is not called."""
        breaker = self._attempt.breaker(candidate, self._call.request.endpoint)
        breaker.record("none", self._attempt.clock(), self._permit)

    def _candidate(self) -> Candidate:
        return self._call.routing.candidate


def _no_slot(outcome: Reply | Rejection) -> bool:
    """`retry` of a result."""
    return isinstance(outcome, Rejection) and outcome.kind in _NO_SLOT
