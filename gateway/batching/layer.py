"""The batching layer: similar calls share an upstream call when they would have to wait anyway.

A call that finds its upstream free is sent at once, unchanged. Calls that arrive while enough calls of their
group are in flight are gathered, and leave together when one of those ends or the batch is full. To the inner
layers the shared call is an ordinary one. Its task belongs to no caller, so a caller that leaves does not
disturb the others.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple, cast

from gateway.batching.batcher import IDLE, Batcher, BatchLimits, PendingBatch
from gateway.batching.experiment import Learned, MergeMode
from gateway.batching.merged_call import (
    SEND_INDIVIDUALLY,
    BatchMember,
    MergedCall,
    batch_outcome,
)
from gateway.batching.profile import BatchProfile, BatchProfiles, ProfileKey
from gateway.batching.split_lists import AnswerSizes, ListLimits, halve, in_parts
from gateway.batching.tuner import FAILED, OK, BatchOutcome
from gateway.core.call import Call, Handler, Reply, Route
from gateway.core.clock import Clock
from gateway.core.endpoint import Endpoint
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.telemetry.logging import logger
from gateway.wire.openai import merge


class BatchPolicy(NamedTuple):
    """How the calls of one model to one endpoint are merged.

    `modes` are the merge modes to choose from. Calls with an output of up to `max_output` tokens are merged;
    lists with one of up to `max_split_output` may be split. `offered()` is whether the upstreams take lists.
    `headers` are the request headers that must be equal. With `per_key`, only calls of the same key merge.
    """

    limits: BatchLimits
    modes: tuple[MergeMode, ...]
    max_output: int
    max_split_output: int
    offered: Callable[[], bool]
    headers: Sequence[str]
    per_key: bool = False


class BatchMetrics(NamedTuple):
    """Observers of batching.

    `size(model, endpoint)` of the callers that share an upstream call; `wait(model, flush_reason)` of the
    seconds that each waited; `wasted(model, tokens)` counts tokens of members whose callers left.
    """

    size: Callable[[str, str], Callable[[float], None]]
    wait: Callable[[str, str], Callable[[float], None]]
    wasted: Callable[[str, int], None]


class Group:
    """Calls that are equal in everything but their payload."""

    def __init__(
        self,
        key: Hashable,
        profile: BatchProfile,
        policy: BatchPolicy,
        route: Route,
        endpoint: Endpoint,
        inner: Handler,
    ) -> None:
        self.key = key
        self.inner = inner
        self.headers = policy.headers
        self.route = route
        self.endpoint = endpoint
        self.batcher = Batcher(policy.limits, profile.tuner)
        self.timer: asyncio.TimerHandle | None = None
        self.rings_at = math.inf
        self.under_way: dict[PendingBatch, MergedCall] = {}


class BatchingLayer:
    """The layer. `policy_of(call)` is None for calls that are never merged."""

    def __init__(
        self,
        policy_of: Callable[[Call], BatchPolicy | None],
        metrics: BatchMetrics,
        clock: Clock,
        suspected: Callable[[bytes, float], bool] = lambda body, now: False,
        profiles: BatchProfiles | None = None,
        learned: Callable[[ProfileKey], Learned | None] = lambda key: None,
    ) -> None:
        """`suspected(body, now)` is whether an engine may have died of this request.

        `profiles` are those that an earlier layer has learned, `learned(key)` is what an earlier run has.
        """
        self._learned = learned
        self._suspected = suspected
        self._policy_of = policy_of
        self._metrics = metrics
        self._clock = clock
        self.profiles: BatchProfiles = {} if profiles is None else profiles
        self._groups: dict[Hashable, Group] = {}
        self._last_dropped: Group | None = None  # reused, so that a sequence of lone calls makes no new groups
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing = False
        self._sizes = AnswerSizes()

    def __call__(self, inner: Handler) -> Handler:
        """The layer around `inner`."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            policy = None if call.request.stream or call.modified else self._policy_of(call)
            parsed = (
                merge.parse(call.request.body, call.request.endpoint, policy.max_split_output)
                if policy is not None
                else None
            )
            if policy is None or parsed is None:
                return inner(call)
            limits = policy.limits
            if len(parsed.items) > 1:
                max_items = min(limits.max_items, self._sizes.most(call, parsed))
                if len(parsed.items) > max_items or sum(parsed.weights) > limits.max_tokens:
                    parts = ListLimits(max_items, limits.max_tokens, self._sizes, self._clock)
                    return in_parts(inner, call, parsed, parts)
            if parsed.output > policy.max_output or call.routing.ceiling is not None or not policy.offered():
                return inner(call) if len(parsed.items) == 1 else self._list(inner, call, parsed, limits)
            if self._suspected(call.request.body, call.timing.ready_at):
                return inner(call)  # isolated, so that no other call dies with it and the suspicion is resolved
            return self._mergeable(inner, call, parsed, policy)

        return handle

    def view(self, upstream: str) -> list[dict[str, object]]:
        """What has been learned of the calls whose first candidate is this upstream."""
        shown = []
        for (model, endpoint, output, _), profile in self.profiles.items():
            if profile.upstream == upstream:
                labels: dict[str, object] = {"model": model, "endpoint": endpoint, "max_output": output}
                shown.append(labels | profile.view())
        return shown

    def flush(self) -> None:
        """Send the calls that are held back, and hold none back from now on: the gateway is stopping."""
        self._flushing = True
        for group in tuple(self._groups.values()):
            group.batcher.flush()
            self._due(group)

    async def close(self) -> None:
        """Cancel the batches in flight; all callers have left."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _list(
        self, inner: Handler, call: Call, parsed: merge.Mergeable, limits: BatchLimits
    ) -> Reply | Rejection:
        """Send a list that is not merged."""
        try:
            return await inner(call)
        except UpstreamFailure as failure:
            return await self._halve(inner, call, parsed, failure, limits)

    async def _halve(
        self,
        inner: Handler,
        call: Call,
        parsed: merge.Mergeable,
        failure: UpstreamFailure,
        limits: BatchLimits,
    ) -> Reply | Rejection:
        parts = ListLimits(limits.max_items, limits.max_tokens, self._sizes, self._clock)
        return await halve(inner, call, parsed, failure, parts)

    async def _mergeable(
        self, inner: Handler, call: Call, parsed: merge.Mergeable, policy: BatchPolicy
    ) -> Reply | Rejection:
        """Handle a call that may be merged."""
        profile, now = self._profile(call, parsed, policy), self._clock()
        merging, served = profile.arrived(now), False
        try:
            if not merging:
                reply = await inner(call)
            else:
                group = self._group(inner, call, parsed, policy, profile)
                member = BatchMember(call, parsed, now)
                outcome = group.batcher.arrive(member, now)
                if isinstance(outcome, list):
                    reply = await self._wait(member, group, outcome)
                else:
                    reply = await self._send_single(member, group, outcome)
            served = isinstance(reply, Reply)
            return reply
        except UpstreamFailure as failure:
            return await self._halve(inner, call, parsed, failure, policy.limits)
        finally:
            ended = self._clock()
            profile.done(ended, ended - now, served=served)

    async def _wait(self, member: BatchMember, group: Group, started: list[PendingBatch]) -> Reply | Rejection:
        """Wait in the group for a batch; `started` are the batches that start now."""
        member.outcome = asyncio.get_running_loop().create_future()
        try:
            self._start(group, started)
            self._arm(group)
            outcome = await member.outcome
        except asyncio.CancelledError:
            self._leave(member, group)
            raise
        finally:
            self._arm(group)
        if isinstance(outcome, UpstreamFailure):
            raise outcome.copy()
        if outcome is SEND_INDIVIDUALLY:  # from here on like a call that was never merged
            return await group.inner(member.call)
        return cast("Reply | Rejection", outcome)

    async def _send_single(self, member: BatchMember, group: Group, flush_reason: str) -> Reply | Rejection:
        """Send the call unchanged, at once."""
        call = member.call
        self._metrics.size(group.route.name, group.endpoint)(1)
        self._metrics.wait(group.route.name, flush_reason)(0.0)
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
            started = group.batcher.ended(
                None, 1, member.tokens, _duration(call, now), outcome, now, bypassed=flush_reason != IDLE
            )
            self._start(group, started)
            self._arm(group)

    def _start(self, group: Group, batches: list[PendingBatch]) -> None:
        for batch in batches:
            merged = MergedCall(group.route, group.endpoint, partial(self._take, group, batch))
            group.under_way[batch] = merged
            merged.task = task = asyncio.create_task(self._run(group, batch, merged))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self, group: Group, batch: PendingBatch, only_first: bool) -> list[BatchMember]:
        now = self._clock()
        taken = group.batcher.take(batch, now, only_first=only_first)
        members = [member for member in taken if isinstance(member, BatchMember)]
        for member in members:
            self._metrics.wait(group.route.name, batch.flush_reason)(now - member.arrived)
        if members:
            self._metrics.size(group.route.name, group.endpoint)(len(members))
        return members

    async def _run(self, group: Group, batch: PendingBatch, merged: MergedCall) -> None:
        """Run one batch until every member has its outcome."""
        outcome: BatchOutcome = FAILED
        call = merged.new_call(batch, group.headers)
        try:
            outcome = await merged.send(group.inner, call)
        except Exception as error:  # noqa: BLE001 - a batch ends here; the next one must not suffer
            logger.exception("bug in the gateway; a batch failed")
            merged.fail(error)
        finally:
            now = self._clock()
            members = merged.seal()
            for member in members:
                member.outcome.cancel()  # has an effect only at shutdown: all others are resolved
            call.lease.settle(call, now)
            del group.under_way[batch]
            merged.task = call.batch = None  # breaks the reference cycles of the task and of the call
            wasted = sum(member.tokens for member in members if member.left)
            if wasted:
                self._metrics.wasted(group.route.name, wasted)
            tokens = sum(member.tokens for member in members)
            started = group.batcher.ended(batch, len(members), tokens, _duration(call, now), outcome, now)
            self._start(group, started)
            self._arm(group)

    def _leave(self, member: BatchMember, group: Group) -> None:
        """Take a member whose caller left out of its batch, or discard its part of the answer."""
        member.left = True
        for batch in group.batcher.leave(member):
            group.under_way[batch].cancel()
        for merged in group.under_way.values():
            merged.leave(member)

    def _arm(self, group: Group) -> None:
        """Set the group's single timer to the moment when its batcher is due; drop an idle group."""
        batcher = group.batcher
        idle = batcher.idle
        due = None if idle else batcher.next_due()
        if group.timer is not None:
            if due is not None and group.rings_at <= due:
                return  # an early timer sets itself again
            group.timer.cancel()
            group.timer = None
        if due is not None:
            now = self._clock()
            group.rings_at = max(due, now + 0.001)
            group.timer = asyncio.get_running_loop().call_later(group.rings_at - now, self._due, group)
        elif idle and self._groups.get(group.key) is group:  # not a newer group with the same key
            del self._groups[group.key]
            self._last_dropped = group

    def _due(self, group: Group) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        self._start(group, group.batcher.due(self._clock()))
        self._arm(group)

    def _profile(self, call: Call, parsed: merge.Mergeable, policy: BatchPolicy) -> BatchProfile:
        upstream = call.routing.candidate.upstream
        model = call.routing.route.name
        key: ProfileKey = (model, call.request.endpoint, parsed.output, upstream)
        profile = self.profiles.get(key)
        if profile is None:
            key = (model, str(call.request.endpoint), parsed.output, upstream)  # views encode plain text
            profile = self.profiles[key] = BatchProfile(upstream, policy.limits, policy.modes, self._learned(key))
        return profile

    def _group(
        self,
        inner: Handler,
        call: Call,
        parsed: merge.Mergeable,
        policy: BatchPolicy,
        profile: BatchProfile,
    ) -> Group:
        headers = tuple([call.request.headers.get(name, "") for name in policy.headers])
        tenant = call.caller.name if policy.per_key else ""
        key = (
            call.request.model,
            call.request.endpoint,
            parsed.key,
            headers,
            call.routing.candidate,
            frozenset(call.routing.candidates),
            tenant,
        )
        group = self._groups.get(key)
        if group is None:
            group = self._last_dropped
            if group is None or group.key != key:
                group = Group(key, profile, policy, call.routing.route, call.request.endpoint, inner)
            self._groups[key] = group
            if self._flushing:
                group.batcher.flush()
        return group


def _duration(call: Call, now: float) -> float:
    """Seconds from sending a call to its answer; 0.0 if it was never sent."""
    return max(0.0, (call.timing.answered_at or now) - call.timing.sent_at) if call.timing.sent_at else 0.0
