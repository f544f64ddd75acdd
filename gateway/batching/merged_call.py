"""One upstream call for several callers: made when it goes, taken apart when its answer is there."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from gateway.batching.batcher import PendingBatch
from gateway.batching.pending import PendingCall
from gateway.batching.tuner import FAILED, OK, OVERLOADED, BatchOutcome
from gateway.core.call import BATCH_CHAT, EMBEDDINGS, Call, Handler, Reply, Route, TokenEstimate
from gateway.core.errors import (
    DEADLINE_IN_QUEUE,
    INVALID,
    PASSED_THROUGH,
    STATUS,
    TOTAL,
    UPSTREAM_INVALID_RESPONSE,
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
from gateway.wire.openai import merge
from gateway.wire.openai import peek as openai
from gateway.wire.openai.merge import Mergeable

SEND_INDIVIDUALLY: Final = object()
"""Told to a caller whose call has to be sent on its own."""


class BatchMember(PendingCall):
    """One caller's part: what it brings, and the future on which it waits, where it has to."""

    __slots__ = ("call", "left", "outcome", "parsed")

    outcome: asyncio.Future[object]

    def __init__(self, call: Call, parsed: Mergeable, now: float) -> None:
        # All of a member is set here, for every call needs one: two frames less.
        self.key = "" if call.caller is None else call.caller.name
        self.priority = call.priority
        self.tokens = sum(parsed.weights) or 1
        self.deadline = call.deadline
        self.arrived = now
        self.stream = False
        self.state = IDLE
        self.items = len(parsed.items)
        self.call = call
        self.parsed = parsed
        self.left = False  # its caller has

    def tell(self, outcome: object) -> None:
        """What becomes of the call; nothing to somebody who has left or knows already."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def batch_outcome(failure: UpstreamFailure) -> BatchOutcome:
    """What a failure says of the size of batches."""
    return OVERLOADED if failure.kind in (UPSTREAM_RATE_LIMITED, UPSTREAM_UNAVAILABLE) else FAILED


class EmptyBatch(Exception):
    """All who would have gone with it went with others, or have left."""


async def send_individually(inner: Handler, share: BatchMember) -> Reply | Rejection:
    """Send a call of a batch that came to nothing on its own; its answer is looked at as the batch's was."""
    call, parsed = share.call, share.parsed
    reply = await inner(call)
    if isinstance(reply, Reply):
        counts, weights = [len(parsed.items)], [parsed.weights]
        if merge.split(call.endpoint, reply.body, counts, weights, b'""') is None:
            raise UpstreamFailure(
                UPSTREAM_INVALID_RESPONSE,
                "The upstream did not answer each item of the request once.",
                cause=INVALID,
            )
    return reply


class MergedCall:
    """`Sealed`: takes its callers when it goes. `take` gives those who go with it, as the batcher decides.

    It is asked whether only the first one is meant.
    """

    def __init__(self, route: Route, endpoint: str, take: Callable[[bool], Sequence[BatchMember]]) -> None:
        self._route = route
        self._endpoint = endpoint
        self._take: Callable[[bool], Sequence[BatchMember]] | None = take
        self._call: Call | None = None  # once it has been sealed
        self.shares: Sequence[BatchMember] = ()
        self.task: asyncio.Task[None] | None = None

    def new_call(self, batch: PendingBatch, headers: Sequence[str]) -> Call:
        """The call that all layers further in see. It has no body before it is sealed."""
        first = batch.first
        if not isinstance(first, BatchMember):
            raise AssertionError("all members are shares")
        theirs = first.call
        call = theirs.derive(f"{theirs.request_id[:120]}-merged")
        named = (*headers, "x-stainless-retry-count")  # which says how many attempts are left
        call.headers = {name: theirs.headers[name] for name in named if name in theirs.headers}
        # All of it is a guess: nobody knows yet who goes with it.
        call.estimate = TokenEstimate(0, batch.tokens + batch.calls * first.parsed.output, capped=False)
        call.batch = self
        return call

    def taken(self, *, only_first: bool = False) -> Sequence[BatchMember]:
        """Who goes with it. Nobody joins it after this."""
        if self._take is not None:
            take, self._take = self._take, None
            self.shares = take(only_first)
        return self.shares

    def materialise(self, call: Call) -> None:
        """Make the body, of those who are still here; again for each attempt."""
        if call.candidate is None:
            raise AssertionError("set before a call goes")
        self.shares = [share for share in self.taken() if not share.left]
        if not self.shares:
            raise EmptyBatch
        self._call = call
        # Nobody's haste is the others': it ends when the time of the most patient one does.
        call.deadline = max(share.call.deadline for share in self.shares)
        call.accepted_at = max(share.call.accepted_at for share in self.shares)
        if len(self.shares) == 1:
            _as_itself(call, self.shares[0].call)
            return
        items = [item for share in self.shares for item in share.parsed.items]
        call.endpoint, call.body = merge.build(
            self._endpoint, self.shares[0].parsed, call.candidate.encoded, items
        )
        call.spans = ()

    def source_bodies(self) -> Sequence[bytes]:
        """What its callers have sent."""
        return [share.call.body for share in self.shares]

    async def send(self, inner: Handler, call: Call) -> BatchOutcome:
        """One call for all of them, and everybody told."""
        try:
            reply = await inner(call)
        except UpstreamFailure as failure:
            self._failed(call, failure)
            failure.drop_frames()
            return batch_outcome(failure)
        except EmptyBatch:
            return FAILED
        if isinstance(reply, Rejection):
            # The place in the queue was the first one's, and so was the deadline.
            self.taken(only_first=reply.kind is DEADLINE_IN_QUEUE)
            self._tell_all(call, reply)
            return FAILED
        if self._distribute(call, reply):
            return OK
        logger.warning(
            "a batch's answer does not fit it; its calls are sent one by one",
            extra={"request_id": call.request_id, "calls": len(self.shares)},
        )
        record_discarded(call, [call])
        self._tell_all(call, SEND_INDIVIDUALLY)
        return FAILED

    def _failed(self, call: Call, failure: UpstreamFailure) -> None:
        several, of_input = len(self.taken()) > 1, failure.status in PASSED_THROUGH
        if failure.kind is UPSTREAM_PATH_UNKNOWN:
            of_input = call.endpoint == BATCH_CHAT  # which no caller has asked for
        if (
            several
            and failure.cause != TOTAL
            and (of_input or classify(failure).retry_scope in ("never", "overflow"))
        ):
            # Somebody's input is wrong, and nobody else shall suffer for it.
            self._tell_all(call, SEND_INDIVIDUALLY)
        elif several and failure.cause == STATUS and call.candidate is not None:
            # Its words may quote one of them, which is nothing for the others.
            told = f"Upstream `{call.candidate.upstream}` answered with status {failure.status}."
            self._tell_all(call, failure.copy(told))
        else:
            self._tell_all(call, failure)

    def fail(self, error: Exception) -> None:
        """A bug of ours has ended it."""
        for share in self.taken():
            if not share.outcome.done():
                share.outcome.set_exception(error)

    def leave(self, share: BatchMember) -> None:
        """This caller has left. Who was under way has cost something."""
        if self._call is not None and share in self.shares:
            _show(share.call, self._call, len(self.shares))
        if self.shares and all(one.left for one in self.shares):
            self.cancel()

    def cancel(self) -> None:
        """All of its callers have left."""
        if self.task is not None:
            # Not before it has begun: of a task that is cancelled before, not even `finally` runs.
            asyncio.get_running_loop().call_soon(self.task.cancel)

    def _tell_all(self, call: Call, outcome: object) -> None:
        shares = self.taken()
        size = 0 if outcome is SEND_INDIVIDUALLY else len(shares)
        _pay(call, shares)
        for share in shares:
            _show(share.call, call, size)
            share.tell(outcome)

    def _distribute(self, call: Call, reply: Reply) -> bool:
        """Give everybody its part of the answer. False: the answer does not fit what was sent."""
        shares = self.shares
        if call.batch is None:
            _pay(call, shares)
            copy_estimated_note(shares[0].call, call)
            _show(shares[0].call, call, 1)
            shares[0].call.tokens, shares[0].call.cost = call.tokens, call.cost
            shares[0].call.generated, shares[0].call.finish = call.generated, call.finish
            shares[0].tell(reply)
            return True
        counts = [len(share.parsed.items) for share in shares]
        weights = [share.parsed.weights for share in shares]
        parts = merge.split(self._endpoint, reply.body, counts, weights, self._route.encoded)
        if parts is None:
            return False
        _pay(call, shares)
        for share, (body, tokens) in zip(shares, parts, strict=True):
            _show(share.call, call, len(shares))
            charge(share.call, tokens, body)
            if self._endpoint != EMBEDDINGS:
                share.call.finish = openai.finish_in(body)
            share.tell(Reply(reply.status, body))
        return True


def _pay(call: Call, shares: Sequence[BatchMember]) -> None:
    """For the attempts that came to nothing; who has left pays otherwise."""
    here = [share for share in shares if not share.left]
    split_failed_usage(call, [share.call for share in here], [share.tokens for share in here])


def _as_itself(call: Call, theirs: Call) -> None:
    """Nobody shares it: it goes as its caller has sent it."""
    call.batch = None
    call.endpoint, call.body, call.spans = theirs.endpoint, theirs.body, theirs.spans
    call.request_id, call.headers = theirs.request_id, theirs.headers


def _show(member: Call, merged: Call, size: int) -> None:
    """What a caller's own call shows of the upstream call that it shared."""
    member.candidate = merged.candidate
    member.attempts += merged.attempts
    member.batch_size = size if size > 1 else 0
    member.upstream_headers = merged.upstream_headers
    member.sent_at = merged.sent_at
    member.answered_at = merged.answered_at
    member.queue_s = max(0.0, merged.sent_at - member.ready_at)
