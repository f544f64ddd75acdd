"""Splits a list that is too long for its upstream, or whose answer is too large, and joins the answers."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.core.call import Call, Handler, Reply, Route, TokenEstimate
from gateway.core.clock import Clock
from gateway.core.errors import (
    INVALID,
    TOO_LARGE,
    UPSTREAM_INVALID_RESPONSE,
    UPSTREAM_UNAVAILABLE,
    Rejection,
    UpstreamFailure,
)
from gateway.usage.call_usage import absorb_part_usage, charge, record_discarded
from gateway.wire.openai import demerge, merge
from gateway.wire.openai.merge import Mergeable

_UNKNOWN: Final = 10**9
_MOST_LEARNED: Final = 256
"""Kinds of requests whose answers have been too large; the oldest is forgotten."""

_MAX_CONCURRENT_PARTS: Final = 16
"""Parts of one list in flight or queued at once: a single list must not fill the queue."""


class AnswerSizes:
    """How many embeddings to request at once, of each kind whose answers have been too large to hold.

    A kind is a model and the members of a request that are not its input, `dimensions` among them.
    """

    def __init__(self) -> None:
        self._most: dict[tuple[str, bytes], int] = {}

    def most(self, call: Call, parsed: Mergeable) -> int:
        """The items that an answer is known to hold, or a large number."""
        return self._most.get((call.request.model, parsed.shared), _UNKNOWN)

    def halved(self, call: Call, parsed: Mergeable) -> int:
        """Half of this request's items, remembered for further requests of its kind."""
        if len(self._most) >= _MOST_LEARNED:
            del self._most[next(iter(self._most))]
        half = -(-len(parsed.items) // 2)
        self._most[call.request.model, parsed.shared] = half
        return half


class _Part:
    """One part of a list; a `DeferredBody`."""

    def __init__(self, call: Call, parsed: Mergeable, part: slice, limits: "ListLimits") -> None:
        self._parsed = parsed._replace(items=parsed.items[part], weights=parsed.weights[part])
        self._limits = limits
        self._endpoint = call.request.endpoint
        self.offset = part.start
        self._list_body = call.request.body
        self.call = call.derive(f"{call.request.id[:120]}-{part.start}")
        self.call.batch, self.call.request.body = self, call.request.body
        # Each part is paced by its own size.
        tokens = sum(self._parsed.weights) + len(self._parsed.items) * parsed.output
        self.call.usage.estimate = TokenEstimate(0, tokens, capped=False)

    def materialise(self, call: Call) -> None:
        """Build the body for the call's candidate."""
        call.request.body = merge.build(
            self._endpoint, self._parsed, call.routing.candidate.encoded, self._parsed.items
        )[1]
        call.request.spans = ()

    def source_bodies(self) -> Sequence[bytes]:
        """The body of the whole list."""
        return (self._list_body,)

    async def send(self, inner: Handler, concurrency: asyncio.Semaphore) -> Reply | Rejection:
        """Send the part. Positions in an error message are shifted to those in the whole list."""
        try:
            try:
                async with concurrency:
                    return await inner(self.call)
            except UpstreamFailure as failure:
                return await halve(inner, self.call, self._parsed, failure, self._limits)
        except UpstreamFailure as failure:
            raise failure.copy(merge.shift_positions(failure.message, self.offset)) from None


class ListLimits(NamedTuple):
    """The items and estimated tokens of one upstream call, and what is known of the sizes of answers."""

    max_items: int
    max_tokens: int
    sizes: AnswerSizes
    clock: Clock


async def halve(
    inner: Handler, call: Call, parsed: Mergeable, failure: UpstreamFailure, limits: ListLimits
) -> Reply | Rejection:
    """Send an embeddings list whose answer was too large again, in halves; raises any other failure."""
    if failure.cause != TOO_LARGE or call.request.endpoint.generates or len(parsed.items) < 2:
        raise failure
    failure.drop_frames()
    return await in_parts(inner, call, parsed, limits._replace(max_items=limits.sizes.halved(call, parsed)))


async def in_parts(inner: Handler, call: Call, parsed: Mergeable, limits: ListLimits) -> Reply | Rejection:
    """Send the list in concurrent parts and join their answers. A part that fails cancels the others."""
    slices = merge.split_list(parsed.items, parsed.weights, limits.max_items, limits.max_tokens)
    parts = [_Part(call, parsed, part, limits) for part in slices]
    try:
        reply = await _send_all(inner, call, parsed, parts, limits.clock)
    except UpstreamFailure:
        record_discarded(call, [part.call for part in parts])
        raise
    if not isinstance(reply, Reply):
        record_discarded(call, [part.call for part in parts])
    return reply


async def _send_all(
    inner: Handler, call: Call, parsed: Mergeable, parts: Sequence[_Part], clock: Clock
) -> Reply | Rejection:
    concurrency = asyncio.Semaphore(_MAX_CONCURRENT_PARTS)
    tasks = [asyncio.create_task(part.send(inner, concurrency)) for part in parts]
    try:
        replies = await _collect(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # only the first failure is reported
        _copy_metadata(call, parts, clock())
    if isinstance(replies, Rejection):
        return replies
    if len({_serving_route(call.routing.route, part.call) for part in parts}) > 1:
        raise UpstreamFailure(
            UPSTREAM_UNAVAILABLE,
            "The parts of the list were answered by different models; send it again.",
            cause=INVALID,
        )
    joined = demerge.join(
        call.request.endpoint,
        [reply.body for reply in replies],
        [part.offset for part in parts],
        call.routing.route.encoded,
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


async def _collect(tasks: Sequence["asyncio.Task[Reply | Rejection]"]) -> list[Reply] | Rejection:
    """All replies in order, or the first rejection."""
    for finished in asyncio.as_completed(tasks):
        reply = await finished
        if isinstance(reply, Rejection):
            return reply
    return [reply for task in tasks if isinstance(reply := task.result(), Reply)]


def _serving_route(route: Route, part: Call) -> Route | None:
    """The model that answered the part: vectors of a fallback model do not mix with the requested model's."""
    models = (route, *route.fallbacks)
    return next((model for model in models if part.routing.candidate in model.candidates), None)


def _copy_metadata(call: Call, parts: Sequence[_Part], now: float) -> None:
    """Settle the parts and record all of them on the caller's call."""
    for part in parts:
        source = part.call
        source.lease.settle(source, now)
        absorb_part_usage(call, source)
        call.attempts += source.attempts
        call.failures += source.failures
        call.routing.candidate = source.routing.candidate
        call.response.upstream_headers = source.response.upstream_headers or call.response.upstream_headers
        call.timing.sent_at = min(
            call.timing.sent_at or source.timing.sent_at, source.timing.sent_at or call.timing.sent_at
        )
        call.timing.answered_at = max(call.timing.answered_at, source.timing.answered_at)
        call.timing.queue_s = max(call.timing.queue_s, source.timing.queue_s)
