"""Some calls go to the other tier as well, for the operator to learn from. No client waits or pays for it."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from gateway.core.call import CHAT, Call, Candidate, Gate, Handler, Reply, Route
from gateway.core.caller import BATCH, Caller
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.routing.cascade.shadow_file import LONGEST, Pair, ShadowFile, line
from gateway.routing.complexity.tiers import EstimateOf, TierRanking
from gateway.telemetry.logging import logger
from gateway.wire.openai.chat_answer import said

KEY: Final = "shadow"
"""The name under which the second answers are booked."""

MOST: Final = 2
"""Second answers under way at once, in one process; while there are so many, no more begin."""

_CHECKS: Final = CheckPolicy(("finish", "empty", "refusal", "json", "arithmetic"))


class ShadowSample(NamedTuple):
    """The share of a model's calls, and where both answers go."""

    share: float
    file: ShadowFile


class TaskPool:
    """The tasks of a process that nobody waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether no more may begin."""
        return len(self._tasks) >= MOST

    def begin(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run it."""

        async def run() -> None:
            await work()

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("bug in the gateway", exc_info=task.exception())

    async def close(self) -> None:
        """End them."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class ShadowLayer:
    """The layer, for whole chat answers."""

    def __init__(
        self,
        samples: Mapping[str, ShadowSample],
        bill: Gate,
        estimate: EstimateOf,
        background: TaskPool,
        rng: Random,
        clock: Clock,
    ) -> None:
        """`samples` by model; `bill` books what a second answer costs."""
        self._samples = samples
        self._bill = bill
        self._estimate = estimate
        self._background = background
        self._rng = rng
        self._clock = clock
        self._caller = Caller(KEY, None, None, BATCH)

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            sample = self._samples.get(call.route.name) if call.route is not None else None
            if sample is None or call.stream or call.endpoint != CHAT or len(call.candidates) < 2:
                return inner(call)
            if self._rng.random() >= sample.share or len(call.body) > LONGEST:
                return inner(call)
            return self._both(inner, call, sample)

        return handle

    async def _both(self, inner: Handler, call: Call, sample: ShadowSample) -> Reply | Rejection:
        route = call.route
        if route is None:
            raise AssertionError("the gates above set the route")
        ranked = TierRanking(
            call, [one for one in route.candidates if one in call.candidates], self._estimate
        )
        tiers, body = (ranked.ascending[:1], ranked.strong), call.body
        reply = await inner(call)
        if ranked.alike:
            return reply
        if isinstance(reply, Reply) and self._fits(call, reply):
            number = next((at for at, tier in enumerate(tiers) if call.candidate in tier), None)
            if number is not None:
                # One of them: a choice of several would be taken for two tiers again.
                second = self._second(call, route, tiers[1 - number][:1])
                first, swapped = reply.body, number == 1
                self._background.begin(lambda: self._ask(inner, second, body, first, sample, swapped))
        return reply

    def _fits(self, call: Call, reply: Reply) -> bool:
        """Whether the answer is as its model gave it and not too long to be kept, and one more may begin."""
        return not call.modified and len(reply.body) <= LONGEST and not self._background.full

    def _second(self, call: Call, route: Route, tier: Sequence[Candidate]) -> Call:
        """The same call, to this tier alone, behind everybody else's, at nobody's expense."""
        second = call.derive(f"{call.request_id[:120]}-shadow")
        second.accepted_at = second.ready_at = self._clock()
        second.body, second.spans, second.headers = call.body, call.spans, {}
        second.caller, second.priority = self._caller, BATCH
        second.route = Route(route.name, route.encoded, tuple(tier))
        second.candidate, second.candidates = tier[0], tier
        second.deadline, second.max_wait_s, second.ceiling = math.inf, math.inf, None
        return second

    async def _ask(
        self, inner: Handler, second: Call, body: bytes, first: bytes, sample: ShadowSample, swapped: bool
    ) -> None:
        """Write both answers down, if there is a second one; `swapped`: the first one is the strong one."""
        second.outcome = "client_gone"  # if it is cancelled
        self._bill.admit(second, second.ready_at)
        try:
            reply = await inner(second)
            second.outcome = "ok" if isinstance(reply, Reply) else reply.kind.outcome
        except UpstreamFailure as failure:
            second.outcome = failure.kind.outcome
            return
        finally:
            second.lease.settle(second, self._clock())
        if isinstance(reply, Reply) and len(reply.body) <= LONGEST:
            weak, strong = (reply.body, first) if swapped else (first, reply.body)
            # Nobody waits for it, so nobody shall be held up by it.
            written = await asyncio.to_thread(_written, body, weak, strong)
            if written is not None:
                await sample.file.add(written)


def _written(body: bytes, weak: bytes, strong: bytes) -> bytes | None:
    texts = ["".join(one.text for one in said(answer)[:1]) for answer in (weak, strong)]
    doubtful = [doubt(body, answer, _CHECKS) != "" for answer in (weak, strong)]
    return line(body, Pair(texts[0], texts[1], doubtful[0], doubtful[1]))
