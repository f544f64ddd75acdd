"""One call whose first attempt came to nothing, or could not be made."""

import math
from typing import Final

from gateway.core.call import BATCH_CHAT, Call, Candidate, Handler, Reply, Route
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

_NO_PLACE: Final = (QUEUE_FULL, DEADLINE_IN_QUEUE, REQUEST_TOO_LARGE)
"""Refusals of one upstream's queue: another upstream may have a place."""


def poisonous(seconds: float) -> Rejection:
    """Tells one whose request engines have died of."""
    return Rejection(
        REQUEST_SUSPENDED,
        "The engines that were given this request died. It is refused for a while, so that it does not "
        "take down more of them.",
        retry_after=seconds,
    )


class RetryLoop:
    """Goes on until a reply, a refusal, or the last failure. `call.candidate` has failed, or could not go."""

    def __init__(self, attempt: AttemptRunner, inner: Handler, call: Call) -> None:
        if call.route is None:
            raise AssertionError("the gates above set the route")
        sent = client_retries(call.headers.get("x-stainless-retry-count"))
        self._attempt = attempt
        self._inner = inner
        self._call = call
        self._route: Route = call.route
        self._plan = RetryPlan(call.route, own_attempts(attempt.rules.attempts, sent), call.candidates)
        self._retries = 0
        self._ticket = 0  # of the candidate that was chosen last
        self._tried: set[Candidate] = set()
        self._needs: frozenset[str] | None = None  # read where a candidate declares what it can do
        self._last: UpstreamFailure | Rejection | None = None

    async def on_breaker_open(self, ticket: int) -> Reply | Rejection:
        """The first candidate's breaker is open, or (with a ticket) it has too much to do.

        Go where neither is so; else to the busy one, or be the one that tries whether it is back. Another
        model is no answer to a busy moment.
        """
        now, first = self._attempt.clock(), self._candidate()
        chosen = self._plan.next(
            now, lambda one: one is not first and self._admits(one), fallbacks=not ticket
        )
        if chosen is None and ticket:
            self._ticket, chosen = ticket, NextAttempt(first, self._route, now)
        elif ticket:
            self._attempt.health[first.upstream].breaker.record("none", now, ticket)
        found = chosen or self._last_resort(now)
        return found if isinstance(found, Rejection) else await self._run_next(found)

    async def on_queue_rejected(self, refusal: Rejection) -> Reply | Rejection:
        """The queue had no place for it. Another upstream's may."""
        waited_at = self._candidate()
        if refusal is MOVED:
            return await self._moved(waited_at)
        self._last = refusal
        if refusal.kind not in _NO_PLACE:
            return self._given_up()
        self._plan.exclude(waited_at)
        chosen = self._plan.next(self._attempt.clock(), self._admits)
        return self._given_up() if chosen is None else await self._run_next(chosen)

    async def _moved(self, waited_at: Candidate) -> Reply | Rejection:
        """It has left the queue there for the first of `call.order`, and may come back if that one fails."""
        now, self._plan.order = self._attempt.clock(), self._call.candidates
        # It has given up its place in line: chance must not send it back to the end of it.
        chosen = self._plan.next(
            now, lambda one: one is not waited_at and self._admits(one, last_resort=True), fallbacks=False
        )
        if chosen is None and self._admits(waited_at):
            chosen = NextAttempt(waited_at, self._route, now)
        found = chosen or self._last_resort(now)
        return found if isinstance(found, Rejection) else await self._run_next(found)

    async def on_failure(self, failure: UpstreamFailure) -> Reply | Rejection:
        """An attempt has failed. Raises the last failure where nothing helps."""
        self._last = failure
        attempt, candidate = self._attempt, self._candidate()
        now, judgement = attempt.clock(), classify(failure)
        self._tried.add(candidate)
        self._call.max_wait_s = math.inf  # where it may still go is the plan's to say from now on
        free, batch = judgement.retry_scope == "overflow", self._call.batch
        if judgement.retry_scope == "never" or (
            free and batch is not None and len(batch.source_bodies()) > 1
        ):
            raise failure  # of several that share a call one is too long: each finds its own way
        if judgement.reason == PATH and self._call.endpoint == BATCH_CHAT:
            raise failure  # it offered that before: each goes as its client has sent it
        poisoned = attempt.poison.refused(self._call.body, now)
        if poisoned is not None:
            return poisonous(poisoned)
        if free:
            self._plan.record_overflow(candidate)
        else:
            self._plan.record_failure(candidate, self._again_at(failure, judgement, now))
        chosen = self._plan.next(now, self._admits)
        if chosen is None:
            raise failure
        in_time = chosen.at < self._deadline(chosen.candidate)
        if not in_time or not (free or attempt.health[candidate.upstream].budget.try_withdraw(now)):
            self._return_breaker_permit(chosen.candidate)
            raise failure
        attempt.counts.retry(candidate.upstream, judgement.reason)
        return await self._run_next(chosen)

    async def _run_next(self, chosen: NextAttempt) -> Reply | Rejection:
        call, attempt, candidate = self._call, self._attempt, chosen.candidate
        now = attempt.clock()
        if call.sent_at:
            call.ready_at += now - call.sent_at  # which was the upstream's time, not the gateway's own
            call.sent_at = 0.0  # until it is sent again: who leaves before that pays for no further attempt
        if chosen.at > now:
            self._return_breaker_permit(candidate)
            await attempt.sleep(chosen.at - now)
            call.ready_at += attempt.clock() - now
            if not self._admits(candidate):
                self._plan.exclude(candidate)
                other = self._plan.next(attempt.clock(), self._admits)
                return self._given_up() if other is None else await self._run_next(other)
        if chosen.route is not self._route:
            attempt.counts.fallback(self._route.name, chosen.route.name)
        call.candidate = candidate
        try:
            reply = await attempt(self._inner, call, candidate, self._ticket)
        except UpstreamFailure as failure:
            return await self.on_failure(failure)
        return reply if isinstance(reply, Reply) else await self.on_queue_rejected(reply)

    def _last_resort(self, now: float) -> NextAttempt | Rejection:
        """Every breaker is open: one call a second tries the upstream that is due first, others hear when."""
        health = self._attempt.health
        candidate = min(self._plan.order, key=lambda one: health[one.upstream].breaker.wait(now))
        breaker = health[candidate.upstream].breaker
        self._ticket = breaker.acquire(now, last_resort=True)
        if self._ticket:
            return NextAttempt(candidate, self._route, now)
        return Rejection(
            UPSTREAM_UNAVAILABLE,
            f"Upstream `{candidate.upstream}` has failed repeatedly and is left alone for a moment.",
            retry_after=max(0.001, breaker.wait(now)),
        )

    def _again_at(self, failure: UpstreamFailure, judgement: Classification, now: float) -> float | None:
        """When the upstream that has failed may be called again."""
        if judgement.retry_scope != "anywhere":
            return None
        rules, left = self._attempt.rules, self._deadline(self._candidate()) - now
        self._retries += 1
        seconds = pause(
            failure.retry_after, self._retries, rules.base_s, rules.max_s, left, self._attempt.rng
        )
        return None if seconds is None else now + seconds

    def _deadline(self, candidate: Candidate) -> float:
        total_s = self._attempt.health[candidate.upstream].total_s
        return min(self._call.deadline, self._call.accepted_at + total_s)

    def _admits(self, candidate: Candidate, *, last_resort: bool = False) -> bool:
        breaker, now = self._attempt.health[candidate.upstream].breaker, self._attempt.clock()
        if candidate not in self._tried and self._attempt.busy(candidate, self._call.endpoint, now):
            return False
        if not affordable(self._call, candidate) or not self._able(candidate):
            return False
        self._ticket = breaker.acquire(now, last_resort)
        return self._ticket > 0

    def _able(self, candidate: Candidate) -> bool:
        """Whether it can do what is asked: the routing has looked at no fallback."""
        if candidate.capabilities is None:
            return True
        if self._needs is None:
            self._needs = needs(self._call.body)
        return self._needs <= candidate.capabilities

    def _return_breaker_permit(self, candidate: Candidate) -> None:
        """The chosen one is not called after all."""
        breaker = self._attempt.health[candidate.upstream].breaker
        breaker.record("none", self._attempt.clock(), self._ticket)

    def _candidate(self) -> Candidate:
        if self._call.candidate is None:
            raise AssertionError("somebody was to be called")
        return self._call.candidate

    def _given_up(self) -> Rejection:
        if isinstance(self._last, UpstreamFailure):
            raise self._last
        if self._last is None:
            raise AssertionError("nothing has happened that could be told")
        return self._last
