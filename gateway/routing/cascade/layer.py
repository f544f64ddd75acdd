"""The cascade layer: returns the cheap answer, or the strong candidate's if the cheap one is doubtful."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Final

from gateway.core.call import Call, Candidate, Handler, Reply, Route, Routing
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.routing.complexity.tiers import EstimateOf, TierRanking
from gateway.routing.router import HEADER
from gateway.usage.call_usage import add_failed_usage, charge
from gateway.wire.request_body import fields_of

KEPT: Final = "kept"
ESCALATED: Final = "escalated"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"


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
            policy = self._policies.get(call.routing.route.name)
            if (
                policy is None
                or call.request.stream
                or not call.request.endpoint.conversation
                or len(call.routing.candidates) < 2
            ):
                return inner(call)
            return self._run(inner, call, policy)

        return handle

    async def _run(self, inner: Handler, call: Call, policy: CheckPolicy) -> Reply | Rejection:
        route, notes = call.routing.route, dict(call.response.notes)
        candidates = [candidate for candidate in route.candidates if candidate in call.routing.candidates]
        ranked = TierRanking(call, candidates, self._estimate)
        strong = ranked.strong
        cheap = call.routing.candidate not in strong and not ranked.single_tier
        reply = await inner(call)
        # After a failure another candidate, or a fallback, may have answered.
        if not cheap or call.routing.candidate in strong or call.routing.candidate not in call.routing.candidates:
            self._count(route.name, SKIPPED)
            return reply
        if isinstance(reply, Rejection):
            return reply
        failed_check = doubt(fields_of(call.request), reply.body, policy)
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
        call.response.notes[HEADER] = f"cascade; {result}={failed_check}"
        self._count(route.name, result)
        return reply if better is None else better

    def _may_escalate(self, call: Call, strong: Candidate) -> bool:
        """Return whether there is time for another answer like the first one, and money."""
        until = min(call.timing.deadline, call.timing.accepted_at + self._total_s(strong.upstream))
        took = call.timing.answered_at - call.timing.sent_at
        # A key with a ceiling can pay for one answer only.
        return call.routing.ceiling is None and self._clock() + took < until


class _Escalation:
    """The strong attempt of a call, which can restore the state of the cheap one."""

    def __init__(self, call: Call, route: Route, notes: dict[str, str], clock: Clock) -> None:
        """`notes` are the response notes from before the cheap answer."""
        self._call = call
        self._route = route
        self._notes = notes
        self._clock = clock
        self._batch_size = call.batch_size
        self._cheap = copy(call.routing), copy(call.timing), copy(call.usage), copy(call.response)

    async def run(
        self, inner: Handler, strong: Sequence[Candidate], reply: Reply, estimate: EstimateOf
    ) -> Reply | None:
        """Return the strong answer, or None with the call restored except for the usage of the attempt."""
        call, (routing, _, usage, _) = self._call, self._cheap
        add_failed_usage(call, routing.candidate, usage.tokens, usage.generated)
        paid = len(call.usage.failed)
        call.usage.tokens, call.usage.generated, call.usage.cost = None, 0, None
        call.response.notes, call.response.finish, call.response.upstream_headers = self._notes, "", ()
        # The first answer's time is not gateway overhead.
        call.timing.ready_at = self._clock()
        # Not sent yet: a client that leaves now pays for no second answer.
        call.timing.sent_at, call.timing.answered_at, call.batch_size = 0.0, 0.0, 0
        # No fallbacks, because there is an answer already.
        only_strong = Route(self._route.name, self._route.encoded, tuple(strong))
        call.routing = Routing(only_strong, strong[0], strong, ceiling=routing.ceiling)
        try:
            better = await inner(call)
        except UpstreamFailure:
            better = None
        finally:
            call.routing.route, call.routing.candidates = self._route, routing.candidates
        if isinstance(better, Reply):
            return better
        failed = usage.failed + call.usage.failed[paid:]
        call.routing, call.timing, call.usage, call.response = self._cheap
        call.usage.failed, call.batch_size = failed, self._batch_size
        self._exclude_wait()
        charge(call, call.usage.tokens, reply.body, estimate)
        return None

    def _exclude_wait(self) -> None:
        """Shift the times by the failed attempt, which is no gateway overhead."""
        timing = self._call.timing
        lost_s = self._clock() - timing.answered_at
        timing.ready_at += lost_s
        timing.sent_at += lost_s
        timing.answered_at += lost_s
