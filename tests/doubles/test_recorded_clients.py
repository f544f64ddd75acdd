"""The fake upstreams answer what real clients send, in the form that each client asks for."""

import pytest
from kit.recorded import Recorded, everything

from doubles.rawclient import call
from doubles.sse import data_of
from doubles.upstream import FaultUpstream
from doubles.wires.engine import EveryWire
from doubles.wires.responses import message, response


def named(request: Recorded) -> str:
    """The test's id."""
    return f"{request.client} {request.method} {request.target}"


@pytest.mark.parametrize("request_", everything(), ids=named)
async def test_each_recorded_request_is_answered(upstream: FaultUpstream, request_: Recorded) -> None:
    EveryWire(upstream).responses.stored["resp_1"] = response("small", message("pong"))
    answer = await call(upstream.port, request_.method, request_.target, request_.body, request_.headers)
    assert (answer.status, answer.complete) == (200, True)
    streams = b'name="stream"\r\n\r\ntrue' in request_.body or bool(request_.json and request_.json.get("stream"))
    kind = answer.header("content-type") or ""
    assert kind.startswith("text/event-stream") == streams
    assert not streams or len(data_of(answer.body)) > 1
