"""Callers whose calls are alike share one upstream call, when they would have to wait anyway.

A call that finds its upstream free goes at once, as itself, byte for byte. What arrives while enough calls
of its group are under way is gathered, and leaves together when one of them ends or the batch is full. The
shared call is an ordinary one for all layers further in; its task belongs to nobody, so who leaves disturbs
nobody.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple, cast

from gateway.batching.batcher import IDLE, Batcher, BatchLimits, PendingBatch
from gateway.batching.experiment import MergeMode
from gateway.batching.merged_call import (
    SEND_INDIVIDUALLY,
    BatchMember,
    MergedCall,
    batch_outcome,
    send_individually,
)
from gateway.batching.profile import BatchProfile, BatchProfiles
from gateway.batching.split_lists import in_parts
from gateway.batching.tuner import FAILED, OK, BatchOutcome
from gateway.core.call import Call, Handler, Reply, Route
from gateway.core.clock import Clock
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.telemetry.logging import logger
from gateway.wire.openai import merge


class BatchPolicy(NamedTuple):
    """How calls of one model to one endpoint are merged; `offered` tells whether the upstreams take lists.

    `ways` are those that may be tried. Merged are calls for answers of up to `max_output` tokens; lists are
    sent in parts up to `longest`. With `apart` nobody's calls are merged with those of another key.
    """

    bounds: BatchLimits
    ways: tuple[MergeMode, ...]
    max_output: int
    longest: int
    offered: Callable[[], bool]
    headers: Sequence[str]
    apart: bool = False


class BatchMetrics(NamedTuple):
    """What is told of each upstream call (of a model and endpoint) how many callers shared it, of each wait
    (of a model, by its release) the seconds, and of waste (model, tokens)."""

    size: Callable[[str, str], Callable[[float], None]]
    wait: Callable[[str, str], Callable[[float], None]]
    wasted: Callable[[str, int], None]


class Group:
    """Calls that are alike in everything but their payload."""

    def __init__(
        self,
        key: Hashable,
        kind: BatchProfile,
        terms: BatchPolicy,
        route: Route,
        endpoint: str,
        inner: Handler,
    ) -> None:
        self.key = key
        self.inner = inner
        self.headers = terms.headers
        self.route = route
        self.endpoint = endpoint
        self.batcher = Batcher(terms.bounds, kind.tuning)
        self.timer: asyncio.TimerHandle | None = None
        self.rings_at = math.inf
        self.under_way: dict[PendingBatch, MergedCall] = {}


class BatchingLayer:
    """The layer. `terms(call)` is None where calls are never merged."""

    def __init__(
        self,
        terms: Callable[[Call], BatchPolicy | None],
        counts: BatchMetrics,
        clock: Clock,
        suspected: Callable[[bytes, float], bool] = lambda body, now: False,
        kinds: BatchProfiles | None = None,
    ) -> None:
        """`suspected(body, now)` tells whether an engine may have died of this request.

        `kinds` is what another one has learned.
        """
        self._suspected = suspected
        self._terms = terms
        self._counts = counts
        self._clock = clock
        self.kinds: BatchProfiles = {} if kinds is None else kinds
        self._groups: dict[Hashable, Group] = {}
        self._spare: Group | None = None  # the last one that was forgotten: lone calls make none anew
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            terms = None if call.stream or call.modified or call.route is None else self._terms(call)
            parsed = merge.parse(call.body, call.endpoint, terms.longest) if terms is not None else None
            if terms is None or parsed is None or call.route is None:
                return inner(call)
            bounds = terms.bounds
            if len(parsed.items) > bounds.max_items or (
                len(parsed.items) > 1 and sum(parsed.weights) > bounds.max_tokens
            ):
                return in_parts(inner, call, parsed, bounds.max_items, bounds.max_tokens, self._clock)
            if parsed.output > terms.max_output or call.ceiling is not None or not terms.offered():
                return inner(call)
            if self._suspected(call.body, call.ready_at):
                return inner(call)  # what it may do to an engine shall be done to nobody else, and be told
            return self._known(inner, call, parsed, terms)

        return handle

    def view(self, upstream: str) -> list[dict[str, object]]:
        """What has been learned of calls that go to this upstream first."""
        shown = []
        for (model, endpoint, output, _), kind in self.kinds.items():
            if kind.upstream == upstream:
                one: dict[str, object] = {"model": model, "endpoint": endpoint, "max_output": output}
                shown.append(one | kind.view())
        return shown

    def flush(self) -> None:
        """The gateway ends: what is held back leaves now, and nobody is held back any more."""
        self._ending = True
        for group in tuple(self._groups.values()):
            group.batcher.flush()
            self._due(group)

    async def close(self) -> None:
        """End what is under way: everybody has left."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _known(
        self, inner: Handler, call: Call, parsed: merge.Mergeable, terms: BatchPolicy
    ) -> Reply | Rejection:
        """A call that may be merged, from its coming to its end."""
        kind, now = self._kind(call, parsed, terms), self._clock()
        merging, served = kind.come(now), False
        try:
            if not merging:
                reply = await inner(call)
            else:
                group, share = self._group(inner, call, parsed, terms, kind), BatchMember(call, parsed, now)
                told = group.batcher.arrive(share, now)
                if isinstance(told, list):
                    reply = await self._gathered(share, group, told)
                else:
                    reply = await self._alone(share, group, told)
            served = isinstance(reply, Reply)
            return reply
        finally:
            kind.gone(self._clock(), served=served)

    async def _gathered(
        self, share: BatchMember, group: Group, begun: list[PendingBatch]
    ) -> Reply | Rejection:
        """It waits for others, and these batches start now."""
        share.outcome = asyncio.get_running_loop().create_future()
        try:
            self._start(group, begun)
            self._arm(group)
            outcome = await share.outcome
        except asyncio.CancelledError:
            self._left(share, group)
            raise
        finally:
            self._arm(group)
        if isinstance(outcome, UpstreamFailure):
            raise outcome.copy()
        return (
            await send_individually(group.inner, share)
            if outcome is SEND_INDIVIDUALLY
            else cast("Reply | Rejection", outcome)
        )

    async def _alone(self, share: BatchMember, group: Group, release: str) -> Reply | Rejection:
        """A slot is free: it goes as itself."""
        call = share.call
        self._counts.size(group.route.name, group.endpoint)(1)
        self._counts.wait(group.route.name, release)(0.0)
        outcome: BatchOutcome = FAILED
        try:
            reply = await group.inner(call)
            outcome = OK if isinstance(reply, Reply) else FAILED
            return reply
        except UpstreamFailure as failure:
            outcome = batch_outcome(failure)
            raise
        finally:
            now = self._clock()
            begun = group.batcher.ended(
                None, 1, share.tokens, _took(call, now), outcome, now, apart=release != IDLE
            )
            self._start(group, begun)
            self._arm(group)

    def _start(self, group: Group, batches: list[PendingBatch]) -> None:
        for batch in batches:
            merged = MergedCall(group.route, group.endpoint, partial(self._taken, group, batch))
            group.under_way[batch] = merged
            merged.task = task = asyncio.create_task(self._run(group, batch, merged))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _taken(self, group: Group, batch: PendingBatch, only_first: bool) -> list[BatchMember]:
        now = self._clock()
        members = group.batcher.take(batch, now, only_first=only_first)
        shares = [one for one in members if isinstance(one, BatchMember)]
        for share in shares:
            self._counts.wait(group.route.name, batch.flush_reason)(now - share.arrived)
        if shares:
            self._counts.size(group.route.name, group.endpoint)(len(shares))
        return shares

    async def _run(self, group: Group, batch: PendingBatch, merged: MergedCall) -> None:
        """One batch, from its start to its last word to everybody in it."""
        outcome: BatchOutcome = FAILED
        call = merged.new_call(batch, group.headers)
        try:
            outcome = await merged.send(group.inner, call)
        except Exception as error:  # noqa: BLE001 - a batch ends here; the next one must not suffer
            logger.exception("bug in the gateway; a batch is given up")
            merged.fail(error)
        finally:
            now = self._clock()
            shares = merged.taken()
            for share in shares:
                share.outcome.cancel()  # of those whom nobody has told anything: the gateway ends
            call.lease.settle(call, now)
            del group.under_way[batch]
            merged.task = call.batch = None  # by which this task, and the call, would hold on to themselves
            wasted = sum(share.tokens for share in shares if share.left)
            if wasted:
                self._counts.wasted(group.route.name, wasted)
            tokens = sum(share.tokens for share in shares)
            begun = group.batcher.ended(batch, len(shares), tokens, _took(call, now), outcome, now)
            self._start(group, begun)
            self._arm(group)

    def _left(self, share: BatchMember, group: Group) -> None:
        """Its caller has gone: out of the batch, or its part is thrown away. A batch of nobody is ended."""
        share.left = True
        for batch in group.batcher.leave(share):
            group.under_way[batch].cancel()
        for merged in group.under_way.values():
            merged.leave(share)

    def _arm(self, group: Group) -> None:
        """One timer for a group, for the moment at which its oldest has waited long enough."""
        batcher = group.batcher
        idle = batcher.idle
        due = None if idle else batcher.next_due()
        if group.timer is not None:
            if due is not None and group.rings_at <= due:
                return  # it sets itself again
            group.timer.cancel()
            group.timer = None
        if due is not None:
            now = self._clock()
            group.rings_at = max(due, now + 0.001)
            group.timer = asyncio.get_running_loop().call_later(group.rings_at - now, self._due, group)
        elif idle and self._groups.get(group.key) is group:
            del self._groups[group.key]  # and never one that has come after it
            self._spare = group

    def _due(self, group: Group) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        self._start(group, group.batcher.due(self._clock()))
        self._arm(group)

    def _kind(self, call: Call, parsed: merge.Mergeable, terms: BatchPolicy) -> BatchProfile:
        first = call.candidate.upstream if call.candidate is not None else ""
        key = (call.model, call.endpoint, parsed.output, first)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = BatchProfile(first, terms.bounds, terms.ways)
        return kind

    def _group(
        self, inner: Handler, call: Call, parsed: merge.Mergeable, terms: BatchPolicy, kind: BatchProfile
    ) -> Group:
        if call.route is None:
            raise AssertionError("the gates above set the route")
        headers = tuple([call.headers.get(name, "") for name in terms.headers])
        tenant = call.caller.name if terms.apart and call.caller is not None else ""
        key = (
            call.model,
            call.endpoint,
            parsed.key,
            headers,
            call.candidate,
            frozenset(call.candidates),
            tenant,
        )
        group = self._groups.get(key)
        if group is None:
            group = self._spare
            if group is None or group.key != key:
                group = Group(key, kind, terms, call.route, call.endpoint, inner)
            self._groups[key] = group
            if self._ending:
                group.batcher.flush()
        return group


def _took(call: Call, now: float) -> float:
    """Seconds from sending a call to its answer; 0.0 where it was not sent in the end."""
    return max(0.0, (call.answered_at or now) - call.sent_at) if call.sent_at else 0.0
