"""The pipeline's types: calls, routes and candidates, leases, replies, gates and layers."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from msgspec import Struct

from gateway.core.caller import INTERACTIVE, STRANGER, LimitStatus, Priority
from gateway.core.endpoint import Endpoint
from gateway.core.errors import Rejection
from gateway.core.headers import header_text
from gateway.core.request_fields import RequestFields
from gateway.core.stream import EventStream
from gateway.core.tokens import Price as Price
from gateway.core.tokens import TokenEstimate as TokenEstimate
from gateway.core.tokens import TokenUsage as TokenUsage
from gateway.core.trace import Trace


class Candidate:
    """An upstream that can serve a route, with the upstream's name for the model.

    `encoded` is that name as JSON, `header` as a header value.

    `price`, and `context_window` and `max_output` in tokens, are None when unknown. `capabilities` None means
    all of them.
    """

    __slots__ = (
        "capabilities",
        "context_window",
        "encoded",
        "header",
        "max_output",
        "model",
        "price",
        "upstream",
        "weight",
    )

    def __init__(
        self,
        upstream: str,
        model: str,
        encoded: bytes,
        price: Price | None = None,
        context_window: int | None = None,
        max_output: int | None = None,
        capabilities: frozenset[str] | None = None,
        weight: int = 1,
    ) -> None:
        self.upstream = upstream
        self.model = model
        self.encoded = encoded
        self.header = header_text(model)
        self.price = price
        self.context_window = context_window
        self.max_output = max_output
        self.capabilities = capabilities
        self.weight = weight


class Route:
    """A public model: its name, and its candidates and fallbacks in config order.

    `encoded` is the name in its answers, as JSON: the one that clients ask for, so an alias has a route of its own.

    The savings report compares calls with `baseline`, by default the first candidate.
    """

    __slots__ = ("baseline", "candidates", "encoded", "fallbacks", "name")

    def __init__(self, name: str, encoded: bytes, candidates: tuple[Candidate, ...]) -> None:
        self.name = name
        self.encoded = encoded
        self.candidates = candidates
        self.fallbacks: tuple[Route, ...] = ()  # set once all routes exist
        self.baseline = candidates[0] if candidates else None

    def under(self, encoded: bytes) -> "Route":
        """The same model, for clients that ask for it by another name, which their answers have."""
        twin = Route(self.name, encoded, self.candidates)
        twin.fallbacks, twin.baseline = self.fallbacks, self.baseline
        return twin

    def at(self, upstream: str) -> "Route":
        """The same model at this upstream only, without fallbacks."""
        return self.only(tuple(one for one in self.candidates if one.upstream == upstream))

    def only(self, candidates: tuple[Candidate, ...]) -> "Route":
        """The same model with these candidates only, without fallbacks."""
        only = Route(self.name, self.encoded, candidates)
        only.baseline = self.baseline
        return only


class Credentials:
    """The client's key headers as received; an empty string counts as absent."""

    __slots__ = ("api_key", "authorization", "x_api_key")

    def __init__(self, authorization: str | None, x_api_key: str | None, api_key: str | None) -> None:
        self.authorization = authorization
        self.x_api_key = x_api_key
        self.api_key = api_key


_NO_CREDENTIALS: Final = Credentials(None, None, None)

NO_CANDIDATE: Final = Candidate("", "", b"")
UNROUTED: Final = Route("", b"", ())
"""The route of a call until `ModelAccess` has found its own."""


class FailedUsage(NamedTuple):
    """Tokens used by one failed attempt. With `estimated` the upstream reported no usage, and an input of 0
    is still unknown.
    """

    candidate: Candidate
    tokens: TokenUsage
    estimated: bool = False


class FailedAttempt(NamedTuple):
    """One failed attempt for the log: what the retry policy calls it, and why, in a closed or masked sentence.

    Times are monotonic seconds; `queue_s` is what the call had waited in queues until then, over all attempts,
    and `ready_at` when its body was there, moved by the time that earlier attempts took.
    """

    upstream: str
    model: str
    result: str
    sentence: str
    sent_at: float = 0.0
    ended_at: float = 0.0
    queue_s: float = 0.0
    ready_at: float = 0.0


class SkippedCandidate(NamedTuple):
    """A candidate that was not called, and why."""

    upstream: str
    model: str
    reason: Literal["breaker_open", "paused"]


class Considered(NamedTuple):
    """What the router compared: the candidates that could serve the call, with one value each.

    `unit` says what the values are: `usd` (expected nano-dollars), `load` (0 empty, 1 full), `calls` (in flight) or
    nothing. `needed` are the capabilities that the request needs. Candidates of the route that are missing here
    lack one, have too small a window or are too dear; `unusable` ones have an open breaker or asked for a pause.
    """

    candidates: Sequence[Candidate]
    unit: str = ""
    values: Sequence[float | None] = ()
    needed: frozenset[str] = frozenset()
    unusable: Sequence[Candidate] = ()


class LimitUse(NamedTuple):
    """What a call reserved of its key's limits, `cost` in nano-dollars; `before` is what was left just before."""

    tokens: int
    cost: int
    before: LimitStatus


CachedBy = Literal["", "hit", "collapsed"]
"""Why a call needed no upstream call: a cached answer, or an identical call already in flight."""


class DeferredBody(Protocol):
    """An upstream call shared by several callers; its body is built at the moment it is sent."""

    def materialise(self, call: "Call") -> None:
        """Build `call.request.body` for `call.routing.candidate`. The batch is closed: no caller joins after this."""

    def source_bodies(self) -> Sequence[bytes]:
        """The bodies of the requests in it, as their clients sent them."""


class ClientRequest(Struct, eq=False, gc=False):
    """What the client asked for. The head is complete from the start; the body fills in the other fields."""

    endpoint: Endpoint
    id: str
    credentials: Credentials = _NO_CREDENTIALS
    headers: Mapping[str, str] = {}
    """The client's, case-insensitive; few are forwarded."""
    body: bytes = b""
    """What is sent upstream, apart from the model's name: the client's body, or what a layer made of it."""
    model: str = ""
    """As the client asked for it; may be an alias."""
    stream: bool = False
    spans: Sequence[tuple[int, int]] = ()
    """Positions of the model name in the body."""
    fields: RequestFields | None = None
    """What has been read of `read_from`; see `gateway/wire/request_body.py`."""
    read_from: bytes | None = None
    method: str = "POST"
    target: str = ""
    """What is asked below an upstream's base URL, query included, where that is not the endpoint's own path."""
    stored_id: str = ""
    """The stored answer that the path names."""


class Routing(Struct, eq=False, gc=False):
    """Where the call goes. `ModelAccess` sets the route and its first candidate; until then both are UNROUTED's."""

    route: Route
    candidate: Candidate
    """Of the current attempt, or of the first."""
    candidates: Sequence[Candidate] = ()
    """In order of preference; empty: the route's own order."""
    max_wait_s: float = math.inf
    """Longest wait for `candidate` while another candidate could take the call."""
    bound: str = ""
    """The only upstream that may serve the call, because what it names lives there."""
    ceiling: int | None = None
    """Nano-dollars left in its key's budget, where that bounds the call."""
    considered: Considered | None = None
    """What the router compared, where it had a choice."""
    skipped: tuple[SkippedCandidate, ...] = ()


class Timing(Struct, eq=False, gc=False):
    """Moments of a call, in monotonic seconds; 0.0 means "not yet"."""

    accepted_at: float
    ready_at: float
    """The whole body has arrived."""
    sent_at: float = 0.0
    """The current attempt began."""
    answered_at: float = 0.0
    """The upstream's answer was complete, or a stream's first event arrived."""
    replied_at: float = 0.0
    """A whole answer was ready to write."""
    first_token_at: float = 0.0
    last_piece_at: float = 0.0
    """The last piece of a stream arrived."""
    queue_s: float = 0.0
    deadline: float = math.inf
    """When the client's own timeout expires, if it announced one."""


class CallUsage(Struct, eq=False, gc=False):
    """The tokens and nano-dollars of a call."""

    estimate: TokenEstimate | None = None
    """Made on first use."""
    generated: int = 0
    """Estimated output tokens relayed so far; for answers without usage."""
    tokens: TokenUsage | None = None
    failed: tuple[FailedUsage, ...] = ()
    """Of failed attempts."""
    estimated: bool = False
    """No upstream reported its usage."""
    needed: bool = False
    """A layer needs the usage."""
    saved: TokenUsage | None = None
    """What the answer had used upstream, if this call did not."""
    saved_cost: int | None = None
    """The same in nano-dollars; None when the price is unknown."""
    cost: int | None = None
    """Nano-dollars; None when the price is unknown."""
    day: str = ""
    """The day whose budget and report the call counts towards."""
    reserved: LimitUse | None = None
    """Of the key's limits."""


class CallResponse(Struct, eq=False, gc=False):
    """What the client gets."""

    status: int = 0
    outcome: str = "internal_error"
    """The metric label; this value until a better one is known."""
    error: Rejection | None = None
    """What the client got in place of an answer."""
    finish: str = ""
    """The finish_reason of the first choice."""
    pieces: int = 0
    """Pieces of a stream that came from the upstream."""
    notes: dict[str, str] = {}
    """Headers about decisions made for this call."""
    upstream_headers: Sequence[tuple[str, str]] = ()
    """Headers of the upstream's answer that reach the client."""


class Call:
    """One client request on its way through the gateway.

    The HTTP server fills in what the request's head says; gates and layers add their decisions. At the end,
    metrics, log and limits are settled from it.
    """

    __slots__ = (
        "attempts",
        "batch",
        "batch_size",
        "cache_hit",
        "cached_by",
        "caller",
        "failures",
        "lease",
        "modified",
        "priority",
        "request",
        "response",
        "routing",
        "timing",
        "trace",
        "usage",
    )

    def __init__(self, request: ClientRequest, now: float) -> None:
        self.request = request
        self.routing = Routing(UNROUTED, NO_CANDIDATE)
        self.timing = Timing(now, now)
        self.usage = CallUsage()
        self.response = CallResponse()
        self.lease = Lease()
        self.caller = STRANGER
        self.priority: Priority = INTERACTIVE
        self.attempts = 0
        self.failures: tuple[FailedAttempt, ...] = ()
        self.modified = False  # the upstream got something else than the client sent: never cached or shared
        self.batch: DeferredBody | None = None  # of a call that carries other callers' requests
        self.batch_size = 0  # callers that shared the upstream call
        self.cache_hit: Reply | None = None  # the cached answer
        self.cached_by: CachedBy = ""
        self.trace: Trace | None = None  # of a traced call

    def derive(self, request_id: str) -> "Call":
        """A call that the gateway makes in place of this one: same route and deadline, no credentials or body."""
        ours = self.request
        call = Call(ClientRequest(ours.endpoint, request_id, headers=ours.headers, model=ours.model), 0.0)
        call.routing = copy(self.routing)
        call.timing = Timing(self.timing.accepted_at, self.timing.ready_at, deadline=self.timing.deadline)
        call.caller, call.priority = self.caller, self.priority
        return call

    def overhead_s(self, now: float) -> float:
        """Seconds spent in the gateway itself: before the upstream call and after its answer.

        A stream counts up to its first event only; relaying runs at the upstream's pace.
        """
        timing = self.timing
        before = timing.sent_at - timing.ready_at - timing.queue_s
        after = 0.0 if self.request.stream else (timing.replied_at or now) - timing.answered_at
        return max(0.0, before + after)


class Gate(Protocol):
    """A synchronous decision: no I/O, no clock, no await."""

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Admit the call (None) or reject it. The gate puts whatever the call acquires into its lease."""


class Holder(Protocol):
    """A resource that a call holds until it ends."""

    def settle(self, call: Call, now: float) -> None:
        """End of the call: release what it held and charge what it used."""


class Lease:
    """The resources a call holds. Settled exactly once, in reverse order, after the last body byte."""

    __slots__ = ("_held", "hold")

    def __init__(self) -> None:
        self._held: list[Holder] = []
        self.hold: Callable[[Holder], None] = self._held.append
        """Add a holder to settle when the call ends."""

    def settle(self, call: Call, now: float) -> None:
        """Settle every holder; calling it again does nothing."""
        try:
            while self._held:
                self._held.pop().settle(call, now)
        finally:
            if self._held:  # a holder raised: settle the rest all the same
                self.settle(call, now)


class Reply:
    """The pipeline's answer: a whole body or a stream.

    `outcome` is that of a whole answer, for metrics; `content_type` is empty for JSON.
    """

    __slots__ = ("body", "content_type", "outcome", "status", "stream")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        stream: EventStream | None = None,
        outcome: str = "ok",
        content_type: str = "",
    ) -> None:
        self.status = status
        self.body = body
        self.stream = stream
        self.outcome = outcome
        self.content_type = content_type


Handler = Callable[[Call], Awaitable[Reply | Rejection]]
Layer = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class Stack:
    """The built pipeline: `door` gates see a request's head, `handle` takes the whole call, and `entries` are
    the names of all stages in order. `handle_kept` takes the calls of endpoints that keep their answers.
    """

    door: tuple[Gate, ...]
    handle: Handler
    handle_kept: Handler
    entries: tuple[str, ...]
