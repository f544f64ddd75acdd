"""One upstream call for several callers: built when it is sent, split when its answer arrives."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.batching.batcher import PendingBatch
from gateway.batching.pending import PendingCall
from gateway.batching.tuner import FAILED, OK, OVERLOADED, BatchOutcome
from gateway.core.call import Call, Handler, Reply, Route, TokenEstimate
from gateway.core.endpoint import Endpoint
from gateway.core.errors import (
    DEADLINE_IN_QUEUE,
    PASSED_THROUGH,
    STATUS,
    TOTAL,
    UPSTREAM_PATH_UNKNOWN,
    UPSTREAM_RATE_LIMITED,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.queueing.upstream_queue import IDLE
from gateway.resilience.classification import classify
from gateway.telemetry.logging import logger
from gateway.usage.call_usage import charge, copy_estimated_note, record_discarded, split_failed_usage
from gateway.wire.openai import demerge, merge
from gateway.wire.openai.merge import Mergeable
from gateway.wire.openai.peek import finish_in

SEND_INDIVIDUALLY: Final = object()
"""Outcome for a member whose call must be sent as a single call."""


class BatchMember(PendingCall):
    """A caller's part of a batch: its call, and the future on which it waits, if it has to."""

    __slots__ = ("call", "left", "outcome", "parsed")

    outcome: asyncio.Future[object]

    def __init__(self, call: Call, parsed: Mergeable, now: float) -> None:
        # Does not call the base classes: every call makes a member, and this saves two frames.
        self.key = call.caller.name
        self.priority = call.priority
        self.tokens = sum(parsed.weights) or 1
        self.deadline = call.timing.deadline
        self.arrived = now
        self.stream = False
        self.state = IDLE
        self.items = len(parsed.items)
        self.call = call
        self.parsed = parsed
        self.left = False  # its caller has disconnected

    def resolve(self, outcome: object) -> None:
        """Set the outcome, unless the caller has left or already has one."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def batch_outcome(failure: UpstreamFailure) -> BatchOutcome:
    """What a failure means for the size of batches."""
    return OVERLOADED if failure.kind in (UPSTREAM_RATE_LIMITED, UPSTREAM_UNAVAILABLE) else FAILED


class EmptyBatch(Exception):
    """All calls of the batch went with other batches, or their callers left."""


class MergedCall:
    """An upstream call shared by the members of a batch; a `DeferredBody`.

    `take(only_first)` returns the members, as the batcher decides; it runs once, when the batch is sealed.
    """

    def __init__(self, route: Route, endpoint: Endpoint, take: Callable[[bool], Sequence[BatchMember]]) -> None:
        self._route = route
        self._endpoint = endpoint
        self._take: Callable[[bool], Sequence[BatchMember]] | None = take
        self._call: Call | None = None  # set when the body is built
        self.members: Sequence[BatchMember] = ()
        self.task: asyncio.Task[None] | None = None

    def new_call(self, batch: PendingBatch, headers: Sequence[str]) -> Call:
        """The call that the inner layers see. It has no body before the batch is sealed."""
        first = batch.first
        if not isinstance(first, BatchMember):
            raise AssertionError("every pending call of a layer is a BatchMember")
        source = first.call
        call = source.derive(f"{source.request.id[:120]}-merged")
        copied = (*headers, "x-stainless-retry-count")  # the retry count limits the gateway's own attempts
        call.request.headers = {name: source.request.headers[name] for name in copied if name in source.request.headers}
        # Uncapped, because the members are not known yet.
        call.usage.estimate = TokenEstimate(0, batch.tokens + batch.calls * first.parsed.output, capped=False)
        call.batch = self
        return call

    def seal(self, *, only_first: bool = False) -> Sequence[BatchMember]:
        """Close the batch and return its members. No call joins it after this."""
        if self._take is not None:
            take, self._take = self._take, None
            self.members = take(only_first)
        return self.members

    def materialise(self, call: Call) -> None:
        """Build the body from the members whose callers are still there; again for each attempt."""
        self.members = [member for member in self.seal() if not member.left]
        if not self.members:
            raise EmptyBatch
        self._call = call
        # The latest deadline counts: a caller in a hurry must not end the call for the others.
        call.timing.deadline = max(member.call.timing.deadline for member in self.members)
        call.timing.accepted_at = max(member.call.timing.accepted_at for member in self.members)
        if len(self.members) == 1:
            _restore_single(call, self.members[0].call)
            return
        items = [item for member in self.members for item in member.parsed.items]
        call.request.endpoint, call.request.body = merge.build(
            self._endpoint, self.members[0].parsed, call.routing.candidate.encoded, items
        )
        call.request.spans = ()

    def source_bodies(self) -> Sequence[bytes]:
        """The bodies as the callers sent them."""
        return [member.call.request.body for member in self.members]

    async def send(self, inner: Handler, call: Call) -> BatchOutcome:
        """Send the call and resolve every member."""
        try:
            reply = await inner(call)
        except UpstreamFailure as failure:
            self._distribute_failure(call, failure)
            failure.drop_frames()
            return batch_outcome(failure)
        except EmptyBatch:
            return FAILED
        if isinstance(reply, Rejection):
            # The first member's call was queued, and only its deadline applies.
            self.seal(only_first=reply.kind is DEADLINE_IN_QUEUE)
            self._resolve_all(call, reply)
            return FAILED
        if self._distribute(call, reply):
            return OK
        logger.warning(
            "a batch's answer does not match its calls; they are sent one by one",
            extra={"request_id": call.request.id, "calls": len(self.members)},
        )
        record_discarded(call, [call])
        self._resolve_all(call, SEND_INDIVIDUALLY)
        return FAILED

    def _distribute_failure(self, call: Call, failure: UpstreamFailure) -> None:
        several, of_input = len(self.seal()) > 1, failure.status in PASSED_THROUGH and not failure.unknown_model
        if failure.kind is UPSTREAM_PATH_UNKNOWN:
            of_input = call.request.endpoint.internal
        if several and failure.cause != TOTAL and (of_input or classify(failure).retry_scope in ("never", "overflow")):
            # A single caller's input may be at fault, and the others must not fail with it.
            self._resolve_all(call, SEND_INDIVIDUALLY)
        elif several and failure.cause == STATUS:
            # The upstream's message may quote one caller's input, which the others must not see.
            message = f"Upstream `{call.routing.candidate.upstream}` answered with status {failure.status}."
            self._resolve_all(call, failure.copy(message))
        else:
            self._resolve_all(call, failure)

    def fail(self, error: Exception) -> None:
        """Fail every member with a bug of the gateway."""
        for member in self.seal():
            if not member.outcome.done():
                member.outcome.set_exception(error)

    def leave(self, member: BatchMember) -> None:
        """Note that a member's caller left; if its call was in flight, record the call on it."""
        if self._call is not None and member in self.members:
            _copy_metadata(member.call, self._call, len(self.members))
        if self.members and all(each.left for each in self.members):
            self.cancel()

    def cancel(self) -> None:
        """Cancel the call after all of its callers have left."""
        if self.task is not None:
            # Not before the task has started: if cancelled earlier, not even its `finally` runs.
            asyncio.get_running_loop().call_soon(self.task.cancel)

    def _resolve_all(self, call: Call, outcome: object) -> None:
        members = self.seal()
        size = 0 if outcome is SEND_INDIVIDUALLY else len(members)
        _charge_failed_attempts(call, members)
        for member in members:
            _copy_metadata(member.call, call, size)
            member.resolve(outcome)

    def _distribute(self, call: Call, reply: Reply) -> bool:
        """Give every member its part of the answer. False if the answer does not match the calls."""
        members = self.members
        if call.batch is None:
            single = members[0].call
            _charge_failed_attempts(call, members)
            copy_estimated_note(single, call)
            _copy_metadata(single, call, 1)
            single.usage.tokens, single.usage.cost = call.usage.tokens, call.usage.cost
            single.usage.generated, single.response.finish = call.usage.generated, call.response.finish
            members[0].resolve(reply)
            return True
        counts = [len(member.parsed.items) for member in members]
        weights = [member.parsed.weights for member in members]
        parts = demerge.split(self._endpoint, reply.body, counts, weights, self._route.encoded)
        if parts is None:
            return False
        _charge_failed_attempts(call, members)
        for member, (body, tokens) in zip(members, parts, strict=True):
            _copy_metadata(member.call, call, len(members))
            charge(member.call, tokens, body)
            if self._endpoint.generates:
                member.call.response.finish = finish_in(body)
            member.resolve(Reply(reply.status, body))
        return True


def _charge_failed_attempts(call: Call, members: Sequence[BatchMember]) -> None:
    """Split the failed attempts among the members whose callers are still there; others pay on leaving."""
    present = [member for member in members if not member.left]
    split_failed_usage(call, [member.call for member in present], [member.tokens for member in present])


def _restore_single(call: Call, source: Call) -> None:
    """Turn a batch of one back into the request that its caller sent."""
    call.batch = None
    call.request.endpoint, call.request.body, call.request.spans = (
        source.request.endpoint,
        source.request.body,
        source.request.spans,
    )
    call.request.id, call.request.headers = source.request.id, source.request.headers


def _copy_metadata(call: Call, merged: Call, size: int) -> None:
    """Record the shared upstream call on a caller's call."""
    call.routing.candidate = merged.routing.candidate
    call.attempts += merged.attempts
    call.failures += merged.failures
    call.routing.skipped += merged.routing.skipped
    call.batch_size = size if size > 1 else 0
    call.response.upstream_headers = merged.response.upstream_headers
    call.timing.sent_at = merged.timing.sent_at
    call.timing.answered_at = merged.timing.answered_at
    call.timing.queue_s = max(0.0, merged.timing.sent_at - call.timing.ready_at)
