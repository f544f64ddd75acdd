"""Calls that the gateway makes for a batch: through the same gates and layers as a client's, without a socket."""

import asyncio
from typing import NamedTuple

from gateway.auth import engine_fields
from gateway.auth.authenticate import Authenticate
from gateway.core.call import Call, ClientRequest, Reply
from gateway.core.caller import BATCH, Caller
from gateway.core.endpoint import Endpoint
from gateway.core.errors import Rejection, UpstreamFailure
from gateway.http.server.generation import Generation
from gateway.http.server.handler import RequestHandler
from gateway.http.server.streaming_response import BUG, DRAIN_NOTE, DRAINED
from gateway.pipeline.gates import admit
from gateway.telemetry.logging import logger


class EndedCall(NamedTuple):
    """A call that has ended, and its answer."""

    call: Call
    answer: Reply | Rejection


class LineCalls:
    """Makes calls in the name of a key, as class `batch`."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def send(self, caller: Caller, endpoint: Endpoint, body: bytes) -> EndedCall:
        """Run one call to its end. It counts, is limited, priced and logged like a client's."""
        handler = self._handler
        generation, clock = handler.generation, handler.clock
        call = Call(ClientRequest(endpoint, handler.new_request_id()), clock())
        call.caller, call.priority = caller, BATCH
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("lines are sent in tasks")
        handler.open_calls[task], handler.live[task] = generation, call
        try:
            answer = await self._answered(generation, call, body)
        except asyncio.CancelledError:
            call.response.outcome, call.response.status = "client_gone", call.response.status or 499
            raise
        finally:
            del handler.open_calls[task], handler.live[task]
            handler.settle(call)
        return EndedCall(call, answer)

    async def _answered(self, generation: Generation, call: Call, body: bytes) -> Reply | Rejection:
        try:
            answer = await self._run(generation, call, body)
        except UpstreamFailure as failure:
            answer = failure.as_rejection()
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if cancelled.args != (DRAIN_NOTE,) or task is None:
                raise
            task.uncancel()
            answer = DRAINED
        except Exception:  # noqa: BLE001 - a line ends here as a 500; the batch goes on
            logger.exception("bug in the gateway", extra={"request_id": call.request.id})
            answer = BUG
        if isinstance(answer, Rejection):
            call.response.status = call.request.endpoint.errors.status(answer.kind)
            call.response.outcome, call.response.error = answer.kind.outcome, answer
        else:
            call.response.status, call.response.outcome = answer.status, "ok"
            call.timing.replied_at = self._handler.clock()
        return answer

    async def _run(self, generation: Generation, call: Call, body: bytes) -> Reply | Rejection:
        # The key is known already.
        door = tuple(gate for gate in generation.stack.door if not isinstance(gate, Authenticate))
        if self._handler.closed:
            door[0].admit(call, call.timing.accepted_at)
            return DRAINED
        rejection = admit(door, call, call.timing.accepted_at) or self._apply_body(generation, call, body)
        return await generation.stack.handle(call) if rejection is None else rejection

    def _apply_body(self, generation: Generation, call: Call, body: bytes) -> Rejection | None:
        asked = call.request
        head = asked.endpoint.head(body, "application/json")
        if isinstance(head, Rejection):
            return head
        asked.body, asked.model, asked.spans = body, head.model, head.spans
        asked.fields, asked.read_from = head.fields, body
        if head.engine_fields and asked.model in generation.engine_models:
            return engine_fields.reject(head.engine_fields, call.caller)
        return None
