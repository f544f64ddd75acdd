"""Sends a call that names a stored response to the upstream that has it, and remembers new ones.

A response belongs to the key that made it: to any other key it does not exist.
"""

from contextlib import suppress

import msgspec

from gateway.core.call import Call, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import LIMITS_UNAVAILABLE, RESPONSE_NOT_FOUND, Rejection
from gateway.redis.command import RedisFailure
from gateway.stored.records import ResponseMemory, StoredResponse
from gateway.stored.redis_store import RedisResponseStore
from gateway.wire.request_body import fields_of


class _Named(msgspec.Struct, gc=False):
    id: str = ""


_decode = msgspec.json.Decoder(_Named).decode
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
            if name:
                record = await self._find(name, call.caller.name)
                if isinstance(record, Rejection):
                    return record
                asked.model = asked.model or record.model
                call.routing.bound = record.upstream
            reply = await inner(call)
            if isinstance(reply, Reply):
                await self._note(call, reply)
            return reply

        return handle

    async def _find(self, name: str, key: str) -> StoredResponse | Rejection:
        record = self._memory.find(name, self._clock())
        if record is None and self._shared is not None:
            try:
                record = await self._shared.find(name)
            except RedisFailure:
                return _UNAVAILABLE
        if record is None or record.key != key:
            return Rejection(RESPONSE_NOT_FOUND, f"Response with id '{name[:200]}' not found.")
        return record

    async def _note(self, call: Call, reply: Reply) -> None:
        """Remember a new response before its client knows its id, and forget a deleted one."""
        asked = call.request
        if asked.stored_id:
            if asked.method == "DELETE":
                self._memory.forget(asked.stored_id)
                if self._shared is not None:
                    with suppress(RedisFailure):  # the upstream no longer has it in any case
                        await self._shared.forget(asked.stored_id)
            return
        fields = fields_of(asked)
        name = _id_of(reply)
        if not name or fields is None or fields.store is False:
            return
        record = StoredResponse(call.caller.name, _model_of(call), call.routing.candidate.upstream)
        self._memory.put(name, record, self._clock())
        if self._shared is not None:
            with suppress(RedisFailure):  # this process knows it
                await self._shared.put(name, record)


def _previous(call: Call) -> str:
    """The id of the response that the call continues."""
    fields = fields_of(call.request)
    previous = None if fields is None else fields.previous_response_id
    return previous if isinstance(previous, str) else ""


def _id_of(reply: Reply) -> str:
    if reply.stream is not None:
        return reply.stream.reader.answer_id
    try:
        return _decode(reply.body).id
    except msgspec.DecodeError:
        return ""


def _model_of(call: Call) -> str:
    """The name to ask for the response by: the client's own, or that of the fallback that answered."""
    route, candidate = call.routing.route, call.routing.candidate
    fallback = next((one.name for one in route.fallbacks if candidate in one.candidates), None)
    return call.request.model if candidate in route.candidates or fallback is None else fallback
