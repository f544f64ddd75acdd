"""A caller's own list that is longer than its upstream takes: sent in parts, joined in its numbering."""

import asyncio
from collections.abc import Sequence
from typing import Final

from gateway.core.call import Call, Handler, Reply, Route, TokenEstimate
from gateway.core.clock import Clock
from gateway.core.errors import (
    INVALID,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.usage.call_usage import absorb_part_usage, charge, record_discarded
from gateway.wire.openai import merge
from gateway.wire.openai.merge import Mergeable

_ABREAST: Final = 16
"""So many parts of one list are under way or wait for a slot: one caller's list must not fill the queue."""


class _Part:
    """`Sealed`: one part of the list."""

    def __init__(self, call: Call, parsed: Mergeable, part: slice) -> None:
        self._parsed = parsed
        self._endpoint = call.endpoint
        self.offset = part.start
        self._items = parsed.items[part]
        self.call = one = call.derive(f"{call.request_id[:120]}-{part.start}")
        one.batch, one.body, self._whole = self, call.body, call.body
        tokens = sum(parsed.weights[part]) + len(self._items) * parsed.output
        one.estimate = TokenEstimate(0, tokens, capped=False)  # each part is paced as what it is

    def materialise(self, call: Call) -> None:
        """Make the body."""
        if call.candidate is None:
            raise AssertionError("set before a call goes")
        call.body = merge.build(self._endpoint, self._parsed, call.candidate.encoded, self._items)[1]
        call.spans = ()

    def source_bodies(self) -> Sequence[bytes]:
        """The list that it is a part of."""
        return (self._whole,)

    async def send(self, inner: Handler, abreast: asyncio.Semaphore) -> Reply | Rejection:
        """Its answer; positions in an error are those of the whole list."""
        try:
            async with abreast:
                return await inner(self.call)
        except UpstreamFailure as failure:
            raise failure.copy(merge.shift_positions(failure.message, self.offset)) from None


async def in_parts(
    inner: Handler, call: Call, parsed: Mergeable, max_items: int, max_tokens: int, clock: Clock
) -> Reply | Rejection:
    """So many parts at once, as far as their upstream has slots; the first that fails ends the others."""
    slices = merge.split_list(parsed.items, parsed.weights, max_items, max_tokens)
    parts = [_Part(call, parsed, one) for one in slices]
    try:
        reply = await _sent(inner, call, parsed, parts, clock)
    except UpstreamFailure:
        record_discarded(call, [part.call for part in parts])
        raise
    if not isinstance(reply, Reply):
        record_discarded(call, [part.call for part in parts])
    return reply


async def _sent(
    inner: Handler, call: Call, parsed: Mergeable, parts: Sequence[_Part], clock: Clock
) -> Reply | Rejection:
    abreast = asyncio.Semaphore(_ABREAST)
    tasks = [asyncio.create_task(part.send(inner, abreast)) for part in parts]
    try:
        replies = await _all(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # the first failure tells enough
        _show(call, parts, clock())
    if isinstance(replies, Rejection):
        return replies
    if call.route is None:
        raise AssertionError("the gates above set the route")
    if len({_served_by(call.route, part.call) for part in parts}) > 1:
        raise UpstreamFailure(
            UPSTREAM_UNAVAILABLE,
            "The parts of the list were answered by different models; send it again.",
            cause=INVALID,
        )
    joined = merge.join(
        call.endpoint,
        [reply.body for reply in replies],
        [part.offset for part in parts],
        call.route.encoded,
        len(parsed.items),
    )
    if joined is None:
        raise UpstreamFailure(
            UPSTREAM_INVALID_RESPONSE,
            "The upstream did not answer each item of the list once.",
            cause=INVALID,
        )
    body, tokens = joined
    charge(call, tokens, body)
    return Reply(200, body)


async def _all(tasks: Sequence["asyncio.Task[Reply | Rejection]"]) -> list[Reply] | Rejection:
    for done in asyncio.as_completed(tasks):
        reply = await done
        if isinstance(reply, Rejection):
            return reply
    return [reply for task in tasks if isinstance(reply := task.result(), Reply)]


def _served_by(route: Route, part: Call) -> Route | None:
    """The model that answered: vectors of a fallback do not go with those of the model asked for."""
    return next((one for one in (route, *route.fallbacks) if part.candidate in one.candidates), None)


def _show(call: Call, parts: Sequence[_Part], now: float) -> None:
    """The caller's own call shows all of them together."""
    for part in parts:
        one = part.call
        one.lease.settle(one, now)
        absorb_part_usage(call, one)
        call.attempts += one.attempts
        call.candidate, call.upstream_headers = one.candidate, one.upstream_headers or call.upstream_headers
        call.sent_at = min(call.sent_at or one.sent_at, one.sent_at or call.sent_at)
        call.answered_at = max(call.answered_at, one.answered_at)
        call.queue_s = max(call.queue_s, one.queue_s)
