"""Shadow calls: the other tier answers some requests too, for the operator to learn from.

No client waits or pays for them. A share, two at once and `max_per_minute` bound them.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final

from aiolimiter import AsyncLimiter

from gateway.core.call import Call, Candidate, Gate, Handler, Reply, Route
from gateway.core.caller import BATCH, Caller
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.routing.cascade.answer_checks import CheckPolicy, doubt
from gateway.routing.cascade.shadow_file import LONGEST, Pair, ShadowFile, line
from gateway.routing.complexity.tiers import EstimateOf, TierRanking
from gateway.telemetry.logging import logger
from gateway.wire.openai.chat_answer import read_choices
from gateway.wire.request_body import read_fields

KEY: Final = "shadow"
"""The key name that second answers are booked under."""

MAX_IN_FLIGHT: Final = 2
"""Second answers under way at once in one process; meanwhile no more begin."""

_CHECKS: Final = CheckPolicy(("finish", "empty", "refusal", "json", "arithmetic"))


class ShadowSample:
    """Which of a model's calls are shadowed, and where both answers go."""

    def __init__(self, share: float, max_per_minute: int | None, file: ShadowFile) -> None:
        self.share = share
        self.limiter = None if max_per_minute is None else AsyncLimiter(1, 60 / max_per_minute)
        """Spaces them evenly: a bucket of a minute's calls would allow twice as many in the first minute."""
        self.file = file

    @property
    def due(self) -> bool:
        """Whether `max_per_minute` allows one more now."""
        return self.limiter is None or self.limiter.has_capacity()


class TaskPool:
    """The background tasks of a process."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether no further task may begin."""
        return len(self._tasks) >= MAX_IN_FLIGHT

    def begin(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs `work` in a task."""

        async def run() -> None:
            await work()

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("bug in the gateway", exc_info=task.exception())

    async def close(self) -> None:
        """Cancels all tasks."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class ShadowLayer:
    """The layer around the cascade; it shadows chat calls that are not streamed."""

    def __init__(
        self,
        samples: Mapping[str, ShadowSample],
        accounting: Gate,
        estimate: EstimateOf,
        background: TaskPool,
        rng: Random,
        clock: Clock,
    ) -> None:
        """`samples` by model; `accounting` books the cost of second answers."""
        self._samples = samples
        self._accounting = accounting
        self._estimate = estimate
        self._background = background
        self._rng = rng
        self._clock = clock
        self._caller = Caller(KEY, None, None, BATCH)

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            sample = self._samples.get(call.routing.route.name)
            if (
                sample is None
                or call.request.stream
                or not call.request.endpoint.conversation
                or len(call.routing.candidates) < 2
            ):
                return inner(call)
            if self._rng.random() >= sample.share or len(call.request.body) > LONGEST:
                return inner(call)
            return self._both(inner, call, sample)

        return handle

    async def _both(self, inner: Handler, call: Call, sample: ShadowSample) -> Reply | Rejection:
        route = call.routing.route
        ranked = TierRanking(
            call, [each for each in route.candidates if each in call.routing.candidates], self._estimate
        )
        tiers, body = (ranked.ascending[:1], ranked.strong), call.request.body
        reply = await inner(call)
        if ranked.single_tier:
            return reply
        if isinstance(reply, Reply) and self._may_shadow(call, reply, sample):
            answered = next((at for at, tier in enumerate(tiers) if call.routing.candidate in tier), None)
            if answered is not None:
                if sample.limiter is not None:
                    await sample.limiter.acquire()  # there is capacity, so this does not wait
                # A single candidate: several would be ranked into two tiers again.
                second = self._second(call, route, tiers[1 - answered][:1])
                first, swapped = reply.body, answered == 1
                self._background.begin(lambda: self._ask(inner, second, body, first, sample, swapped))
        return reply

    def _may_shadow(self, call: Call, reply: Reply, sample: ShadowSample) -> bool:
        """Whether the answer is the model's own and short enough to store, and the bounds allow one more."""
        fits = not call.modified and len(reply.body) <= LONGEST
        return fits and not self._background.full and sample.due

    def _second(self, call: Call, route: Route, tier: Sequence[Candidate]) -> Call:
        """A copy of the call for this tier only, at batch priority, charged to no key."""
        second = call.derive(f"{call.request.id[:120]}-shadow")
        second.timing.accepted_at = second.timing.ready_at = self._clock()
        second.request.body, second.request.spans, second.request.headers = call.request.body, call.request.spans, {}
        second.caller, second.priority = self._caller, BATCH
        second.routing.route = Route(route.name, route.encoded, tuple(tier))
        second.routing.candidate, second.routing.candidates = tier[0], tier
        second.timing.deadline, second.routing.max_wait_s, second.routing.ceiling = math.inf, math.inf, None
        return second

    async def _ask(
        self, inner: Handler, second: Call, body: bytes, first: bytes, sample: ShadowSample, swapped: bool
    ) -> None:
        """Gets the second answer and writes both to the file; `swapped`: the first one is the strong one."""
        second.response.outcome = "client_gone"  # if it is cancelled
        self._accounting.admit(second, second.timing.ready_at)
        try:
            reply = await inner(second)
            second.response.outcome = "ok" if isinstance(reply, Reply) else reply.kind.outcome
        except UpstreamFailure as failure:
            second.response.outcome = failure.kind.outcome
            return
        finally:
            second.lease.settle(second, self._clock())
        if isinstance(reply, Reply) and len(reply.body) <= LONGEST:
            weak, strong = (reply.body, first) if swapped else (first, reply.body)
            # In a thread, so that no request is held up.
            written = await asyncio.to_thread(_written, body, weak, strong)
            if written is not None:
                await sample.file.add(written)


def _written(body: bytes, weak: bytes, strong: bytes) -> bytes | None:
    texts = ["".join(one.text for one in read_choices(answer)[:1]) for answer in (weak, strong)]
    fields = read_fields(body)
    doubtful = [doubt(fields, answer, _CHECKS) != "" for answer in (weak, strong)]
    return line(body, Pair(texts[0], texts[1], doubtful[0], doubtful[1]))
