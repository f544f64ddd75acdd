"""The cheap answer first; where it is doubtful, the strong candidate's in its place, once."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from gateway.core.call import CHAT, Call, Candidate, Handler, Reply, Route
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.routing.complexity.tiers import EstimateOf, TierRanking
from gateway.routing.router import HEADER
from gateway.usage.call_usage import charge, wasted

KEPT: Final = "kept"
ESCALATED: Final = "escalated"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"

_OF_AN_ANSWER: Final = (
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
    """The layer. It has no part in streams, whose beginning is with the client before their end is known."""

    def __init__(
        self,
        terms: Mapping[str, CheckPolicy],
        estimate: EstimateOf,
        total_s: Callable[[str], float],
        counted: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        """`terms` by model; `total_s` is the time that an upstream has for a call.

        `counted` is told of each call: model, and one of the four words above.
        """
        self._terms = terms
        self._estimate = estimate
        self._total_s = total_s
        self._counted = counted
        self._clock = clock

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            terms = self._terms.get(call.route.name) if call.route is not None else None
            if terms is None or call.stream or call.endpoint != CHAT or len(call.candidates) < 2:
                return inner(call)
            return self._first(inner, call, terms)

        return handle

    async def _first(self, inner: Handler, call: Call, terms: CheckPolicy) -> Reply | Rejection:
        route, told = call.route, dict(call.response_notes)
        if route is None:
            raise AssertionError("the gates above set the route")
        ranked = TierRanking(
            call, [one for one in route.candidates if one in call.candidates], self._estimate
        )
        strong = ranked.strong
        cheap = call.candidate not in strong and not ranked.alike
        reply = await inner(call)
        # Another one may have answered in its place: a candidate that could, or a fallback.
        if not cheap or call.candidate in strong or call.candidate not in call.candidates:
            self._counted(route.name, SKIPPED)
            return reply
        if isinstance(reply, Rejection):
            return reply
        doubted = doubt(call.body, reply.body, terms)
        if not doubted:
            self._counted(route.name, KEPT)
            return reply
        better = None
        if self._may(call, strong[0]):
            better = await _Second(call, route, told, self._clock).ask(inner, strong, reply, self._estimate)
        result = FAILED if better is None else ESCALATED
        if better is None:
            call.modified = True  # it shall not be kept, and outlive what made it necessary
        call.response_notes[HEADER] = f"cascade; {result}={doubted}"
        self._counted(route.name, result)
        return reply if better is None else better

    def _may(self, call: Call, strong: Candidate) -> bool:
        """Whether there is time for it, going by the first answer, and money."""
        until = min(call.deadline, call.accepted_at + self._total_s(strong.upstream))
        took = call.answered_at - call.sent_at
        # With a ceiling the key has no more than what one answer costs.
        return call.ceiling is None and self._clock() + took < until


class _Second:
    """A call between its cheap answer, which it can take back, and its strong one."""

    def __init__(self, call: Call, route: Route, told: dict[str, str], clock: Clock) -> None:
        """`told` are the notes from before the first answer."""
        self._call = call
        self._route = route
        self._told = told
        self._order = call.candidates
        self._clock = clock
        self._state = {name: getattr(call, name) for name in _OF_AN_ANSWER}

    async def ask(
        self, inner: Handler, strong: Sequence[Candidate], reply: Reply, estimate: EstimateOf
    ) -> Reply | None:
        """The strong answer, or None: then the call is as the cheap one left it, but for what was spent."""
        call, before = self._call, len(self._call.failed_usage)
        if call.candidate is not None:
            wasted(call, call.candidate, call.tokens, call.generated)
        paid = len(call.failed_usage)
        call.response_notes, call.tokens, call.generated, call.finish, call.upstream_headers = (
            self._told,
            None,
            0,
            "",
            (),
        )
        call.candidate, call.candidates, call.max_wait_s = strong[0], strong, math.inf
        call.ready_at = self._clock()  # for the time that the first one took is not the gateway's own
        # Not sent yet: who leaves before it is pays for no second answer.
        call.sent_at, call.answered_at, call.batch_size, call.cost = 0.0, 0.0, 0, None
        # No fallbacks: who fails here has an answer already.
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
        self._forget_time()
        call.failed_usage = call.failed_usage[:before] + call.failed_usage[paid:]
        charge(call, call.tokens, reply.body, estimate)
        return None

    def _forget_time(self) -> None:
        """The second answer was waited for in vain: no time of the first one, or of the gateway."""
        call = self._call
        lost_s = self._clock() - call.answered_at
        call.ready_at, call.sent_at = call.ready_at + lost_s, call.sent_at + lost_s
        call.answered_at += lost_s
