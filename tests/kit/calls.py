"""Calls, routes and candidates as the layers of the pipeline get them."""

from typing import Any

from gateway.auth.authenticate import ANONYMOUS
from gateway.core.call import Call, Candidate, ClientRequest, Route
from gateway.wire.openai.chat import CHAT


def make_call(endpoint: str = CHAT, now: float = 0.0, *, request_id: str = "id", **fields: Any) -> Call:
    """A call of the anonymous caller, accepted at `now`; `fields` are set on it, or on the record that has them.

    With a `route` and no `candidate`, it is about to call the route's first candidate.
    """
    call = Call(ClientRequest(endpoint, request_id), now)
    call.caller = ANONYMOUS
    if "route" in fields:
        fields = {"candidate": fields["route"].candidates[0], **fields}
    records = (call.request, call.routing, call.timing, call.usage, call.response)
    for name, value in fields.items():
        setattr(next((one for one in records if name in one.__struct_fields__), call), name, value)
    return call


def make_candidate(upstream: str = "local", *more: Any, **fields: Any) -> Candidate:
    """A candidate whose upstream calls the model `up`."""
    return Candidate(upstream, "up", b'"up"', *more, **fields)


def make_route(*candidates: Candidate, name: str = "m") -> Route:
    """A route over these candidates, or over one at the upstream `local`."""
    return Route(name, f'"{name}"'.encode(), candidates or (make_candidate(),))
