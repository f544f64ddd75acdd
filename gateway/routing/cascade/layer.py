"""The cascade layer: returns the cheap answer, or the strong candidate's if the cheap one is doubtful."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from gateway.core.call import CHAT, Call, Candidate, Handler, Reply, Route
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.routing.complexity.tiers import EstimateOf, TierRanking
from gateway.routing.router import HEADER
from gateway.usage.call_usage import add_failed_usage, charge

KEPT: Final = "kept"
ESCALATED: Final = "escalated"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"

_ANSWER_FIELDS: Final = (
    "batch_size",
    "candidate",
    "tokens",
    "generated",
    "finish",
    "response_notes",
    "upstream_headers",
    "ready_at",
    "sent_at",
    "answered_at",
)


class CascadeLayer:
    """The layer. Streams pass, because they reach the client before they can be checked."""

    def __init__(
        self,
        policies: Mapping[str, CheckPolicy],
        estimate: EstimateOf,
        total_s: Callable[[str], float],
        count: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        """`policies` is by model; `total_s` returns an upstream's total timeout.

        `count` counts each call: model, and one of the four results above.
        """
        self._policies = policies
        self._estimate = estimate
        self._total_s = total_s
        self._count = count
        self._clock = clock

    def __call__(self, inner: Handler) -> Handler:
        """Wrap `inner`."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            policy = self._policies.get(call.route.name) if call.route is not None else None
            if policy is None or call.stream or call.endpoint != CHAT or len(call.candidates) < 2:
                return inner(call)
            return self._run(inner, call, policy)

        return handle

    async def _run(self, inner: Handler, call: Call, policy: CheckPolicy) -> Reply | Rejection:
        route, notes = call.route, dict(call.response_notes)
        if route is None:
            raise AssertionError("the gates above set the route")
        candidates = [candidate for candidate in route.candidates if candidate in call.candidates]
        ranked = TierRanking(call, candidates, self._estimate)
        strong = ranked.strong
        cheap = call.candidate not in strong and not ranked.single_tier
        reply = await inner(call)
        # After a failure another candidate, or a fallback, may have answered.
        if not cheap or call.candidate in strong or call.candidate not in call.candidates:
            self._count(route.name, SKIPPED)
            return reply
        if isinstance(reply, Rejection):
            return reply
        failed_check = doubt(call.body, reply.body, policy)
        if not failed_check:
            self._count(route.name, KEPT)
            return reply
        better = None
        if self._may_escalate(call, strong[0]):
            escalation = _Escalation(call, route, notes, self._clock)
            better = await escalation.run(inner, strong, reply, self._estimate)
        result = FAILED if better is None else ESCALATED
        if better is None:
            call.modified = True  # a doubtful answer must not be cached
        call.response_notes[HEADER] = f"cascade; {result}={failed_check}"
        self._count(route.name, result)
        return reply if better is None else better

    def _may_escalate(self, call: Call, strong: Candidate) -> bool:
        """Return whether there is time for another answer like the first one, and money."""
        until = min(call.deadline, call.accepted_at + self._total_s(strong.upstream))
        took = call.answered_at - call.sent_at
        # A key with a ceiling can pay for one answer only.
        return call.ceiling is None and self._clock() + took < until


class _Escalation:
    """The strong attempt of a call, which can restore the state of the cheap one."""

    def __init__(self, call: Call, route: Route, notes: dict[str, str], clock: Clock) -> None:
        """`notes` are the response notes from before the cheap answer."""
        self._call = call
        self._route = route
        self._notes = notes
        self._order = call.candidates
        self._clock = clock
        self._state = {name: getattr(call, name) for name in _ANSWER_FIELDS}

    async def run(
        self, inner: Handler, strong: Sequence[Candidate], reply: Reply, estimate: EstimateOf
    ) -> Reply | None:
        """Return the strong answer, or None with the call restored except for the usage of the attempt."""
        call, before = self._call, len(self._call.failed_usage)
        if call.candidate is not None:
            add_failed_usage(call, call.candidate, call.tokens, call.generated)
        paid = len(call.failed_usage)
        call.response_notes, call.tokens, call.generated, call.finish, call.upstream_headers = (
            self._notes,
            None,
            0,
            "",
            (),
        )
        call.candidate, call.candidates, call.max_wait_s = strong[0], strong, math.inf
        call.ready_at = self._clock()  # the first answer's time is not gateway overhead
        # Not sent yet: a client that leaves now pays for no second answer.
        call.sent_at, call.answered_at, call.batch_size, call.cost = 0.0, 0.0, 0, None
        # No fallbacks, because there is an answer already.
        call.route = Route(self._route.name, self._route.encoded, tuple(strong))
        try:
            better = await inner(call)
        except UpstreamFailure:
            better = None
        finally:
            call.route, call.candidates = self._route, self._order
        if isinstance(better, Reply):
            return better
        for name, value in self._state.items():
            setattr(call, name, value)
        self._exclude_wait()
        call.failed_usage = call.failed_usage[:before] + call.failed_usage[paid:]
        charge(call, call.tokens, reply.body, estimate)
        return None

    def _exclude_wait(self) -> None:
        """Shift the times by the failed attempt, which is no gateway overhead."""
        call = self._call
        lost_s = self._clock() - call.answered_at
        call.ready_at, call.sent_at = call.ready_at + lost_s, call.sent_at + lost_s
        call.answered_at += lost_s
