"""Sends a call that names a stored response to the upstream that has it, and remembers new ones.

A response belongs to the key that made it: to any other key it does not exist.
"""

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import structs

from gateway.core.call import Call, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import LIMITS_UNAVAILABLE, RESPONSE_NOT_FOUND, Rejection
from gateway.redis.command import RedisFailure
from gateway.stored.records import ResponseMemory, StoredResponse
from gateway.stored.redis_store import RedisResponseStore
from gateway.usage.cost import cost
from gateway.wire.openai import usage
from gateway.wire.openai.responses import UNFINISHED
from gateway.wire.request_body import fields_of


class _Told(msgspec.Struct, gc=False):
    id: Any = None
    status: Any = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Told).decode
_UNAVAILABLE = Rejection(
    LIMITS_UNAVAILABLE, "Redis does not answer, so it is not known which upstream has this response.", retry_after=1.0
)


class StoredResponses:
    """The layer around the calls of endpoints that keep their answers."""

    def __init__(self, memory: ResponseMemory, shared: RedisResponseStore | None, clock: Clock) -> None:
        """`shared` is what all gateways remember, if they share a Redis."""
        self._memory = memory
        self._shared = shared
        self._clock = clock

    def __call__(self, inner: Handler) -> Handler:
        """Wrap `inner`."""

        async def handle(call: Call) -> Reply | Rejection:
            asked = call.request
            name = asked.stored_id or _previous(call)
            record: StoredResponse | None = None
            if name:
                found = await self._find(name, call.caller.name)
                if isinstance(found, Rejection):
                    return found
                record = found
                asked.model = asked.model or record.model
                call.routing.bound = record.upstream
            reply = await inner(call)
            if not isinstance(reply, Reply):
                return reply
            if not asked.stored_id:
                await self._remember(call, reply)
            elif asked.method == "DELETE":
                await self._forget(asked.stored_id)
            elif record is not None and record.unpaid:
                await self._book(call, reply, record)
            return reply

        return handle

    async def _find(self, name: str, key: str) -> StoredResponse | Rejection:
        record = self._memory.find(name, self._clock())
        # Another gateway may have booked what is unpaid here.
        if (record is None or record.unpaid) and self._shared is not None:
            try:
                record = await self._shared.find(name) or record
            except RedisFailure:
                if record is None:
                    return _UNAVAILABLE
        if record is None or record.key != key:
            return Rejection(RESPONSE_NOT_FOUND, f"Response with id '{name[:200]}' not found.")
        return record

    async def _remember(self, call: Call, reply: Reply) -> None:
        """Remember a new response before its client knows its id."""
        fields = fields_of(call.request)
        told = _told(reply)
        name = told.id if reply.stream is None else reply.stream.reader.answer_id
        if not isinstance(name, str) or not name or fields is None or fields.store is False:
            return
        unpaid = told.status in UNFINISHED
        await self._put(
            name, StoredResponse(call.caller.name, _model_of(call), call.routing.candidate.upstream, unpaid)
        )

    async def _forget(self, name: str) -> None:
        self._memory.forget(name)
        if self._shared is not None:
            with suppress(RedisFailure):  # the upstream no longer has it in any case
                await self._shared.forget(name)

    async def _book(self, call: Call, reply: Reply, record: StoredResponse) -> None:
        """Book what a response has used in the background, with the first call that sees it done."""
        told = _told(reply)
        tokens = usage.tokens(told.usage)
        if told.status in UNFINISHED or tokens is None:
            return
        await self._put(call.request.stored_id, structs.replace(record, unpaid=False))
        call.usage.tokens, price = tokens, call.routing.candidate.price
        if price is not None:
            call.usage.cost = cost(tokens, price)

    async def _put(self, name: str, record: StoredResponse) -> None:
        self._memory.put(name, record, self._clock())
        if self._shared is not None:
            with suppress(RedisFailure):  # this process knows it
                await self._shared.put(name, record)


def _previous(call: Call) -> str:
    """The id of the response that the call continues."""
    fields = fields_of(call.request)
    previous = None if fields is None else fields.previous_response_id
    return previous if isinstance(previous, str) else ""


def _told(reply: Reply) -> _Told:
    """What a whole answer tells; nothing for a stream."""
    try:
        return _decode(reply.body)
    except msgspec.DecodeError:
        return _Told()


def _model_of(call: Call) -> str:
    """The name to ask for the response by: the client's own, or that of the fallback that answered."""
    route, candidate = call.routing.route, call.routing.candidate
    fallback = next((one.name for one in route.fallbacks if candidate in one.candidates), None)
    return call.request.model if candidate in route.candidates or fallback is None else fallback
