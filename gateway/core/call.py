"""The pipeline's types: calls, routes and candidates, leases, replies, gates and layers."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from gateway.core.caller import INTERACTIVE, Caller, Priority
from gateway.core.errors import Rejection
from gateway.core.headers import header_text
from gateway.core.tokens import Price as Price
from gateway.core.tokens import TokenEstimate as TokenEstimate
from gateway.core.tokens import TokenUsage as TokenUsage
from gateway.core.trace import Trace

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
BATCH_CHAT: Final = "/v1/chat/completions/batch"
"""vLLM's endpoint for many conversations in one request. Only the gateway calls it."""


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
    """A public model: its name (`encoded`: as JSON), and its candidates and fallbacks in config order.

    The savings report compares calls with `baseline`, by default the first candidate.
    """

    __slots__ = ("baseline", "candidates", "encoded", "fallbacks", "name")

    def __init__(self, name: str, encoded: bytes, candidates: tuple[Candidate, ...]) -> None:
        self.name = name
        self.encoded = encoded
        self.candidates = candidates
        self.fallbacks: tuple[Route, ...] = ()  # set once all routes exist
        self.baseline = candidates[0] if candidates else None


class Credentials:
    """The client's key headers as received; an empty string counts as absent."""

    __slots__ = ("api_key", "authorization", "x_api_key")

    def __init__(self, authorization: str | None, x_api_key: str | None, api_key: str | None) -> None:
        self.authorization = authorization
        self.x_api_key = x_api_key
        self.api_key = api_key


_NO_CREDENTIALS: Final = Credentials(None, None, None)


class FailedUsage(NamedTuple):
    """Tokens used by one failed attempt. With `estimated` the upstream reported no usage, and an input of 0
    is still unknown.
    """

    candidate: Candidate
    tokens: TokenUsage
    estimated: bool = False


class FailedAttempt(NamedTuple):
    """One failed attempt for the log: what the retry policy calls it, and why, in a closed or masked sentence."""

    upstream: str
    model: str
    result: str
    sentence: str


CachedBy = Literal["", "hit", "collapsed"]
"""Why a call needed no upstream call: a cached answer, or an identical call already in flight."""


class DeferredBody(Protocol):
    """An upstream call shared by several callers; its body is built at the moment it is sent."""

    def materialise(self, call: "Call") -> None:
        """Build `call.body` for `call.candidate`. The batch is closed: no caller joins after this."""

    def source_bodies(self) -> Sequence[bytes]:
        """The bodies of the requests in it, as their clients sent them."""


class Call:
    """One client request on its way through the gateway. Times are monotonic seconds; 0.0 means "not yet".

    The HTTP server fills in what the request's head says; gates and layers add their decisions. At the end,
    metrics, log and limits are settled from it.
    """

    __slots__ = (
        "accepted_at",
        "answered_at",
        "attempts",
        "batch",
        "batch_size",
        "body",
        "cache_hit",
        "cache_lookup",
        "cached_by",
        "caller",
        "candidate",
        "candidates",
        "ceiling",
        "cost",
        "credentials",
        "day",
        "deadline",
        "endpoint",
        "error",
        "estimate",
        "estimated",
        "failed_usage",
        "failures",
        "finish",
        "first_token_at",
        "generated",
        "headers",
        "lease",
        "max_wait_s",
        "model",
        "modified",
        "needs_usage",
        "outcome",
        "priority",
        "queue_s",
        "ready_at",
        "replied_at",
        "request_id",
        "response_notes",
        "route",
        "saved",
        "saved_cost",
        "sent_at",
        "spans",
        "status",
        "stream",
        "tokens",
        "trace",
        "upstream_headers",
    )

    def __init__(self, endpoint: str, request_id: str, credentials: Credentials, now: float) -> None:
        self.endpoint = endpoint
        self.request_id = request_id
        self.credentials = credentials
        self.accepted_at = now
        self.ready_at = now  # the whole body has arrived
        self.sent_at = 0.0  # the current attempt began
        self.answered_at = 0.0  # the upstream's answer was complete, or a stream's first event arrived
        self.replied_at = 0.0  # a whole answer was ready to write
        self.first_token_at = 0.0
        self.queue_s = 0.0
        self.deadline = math.inf  # when the client's own timeout expires, if it announced one
        self.headers: Mapping[str, str] = {}  # the client's, case-insensitive; few are forwarded
        self.body = b""
        self.model = ""  # as the client asked for it
        self.stream = False
        self.spans: Sequence[tuple[int, int]] = ()  # positions of the model name in the body
        self.caller: Caller | None = None
        self.priority: Priority = INTERACTIVE
        self.route: Route | None = None
        self.candidate: Candidate | None = None  # of the current attempt, or of the first
        self.candidates: Sequence[Candidate] = ()  # in order of preference; empty: the route's own order
        self.max_wait_s = math.inf  # longest wait for `candidate` while another candidate could take the call
        self.ceiling: int | None = None  # nano-dollars left in its key's budget, where that bounds the call
        self.modified = False  # the upstream got something else than the client sent: never cached or shared
        self.response_notes: dict[str, str] = {}  # response headers about decisions made for this call
        # Headers of the upstream's answer that reach the client.
        self.upstream_headers: Sequence[tuple[str, str]] = ()
        self.attempts = 0
        self.batch: DeferredBody | None = None  # of a call that carries other callers' requests
        self.batch_size = 0  # callers that shared the upstream call
        self.estimate: TokenEstimate | None = None  # made on first use
        self.generated = 0  # estimated output tokens relayed so far; for answers without usage
        self.tokens: TokenUsage | None = None
        self.failed_usage: tuple[FailedUsage, ...] = ()  # of failed attempts
        self.estimated = False  # no upstream reported its usage
        self.cache_lookup: object = None  # the cache's state for this call, if the call is cacheable
        self.cache_hit: Reply | None = None  # the cached answer
        self.cached_by: CachedBy = ""
        self.saved: TokenUsage | None = None  # what the answer had used upstream, if this call did not
        self.saved_cost: int | None = None  # the same in nano-dollars; None when the price is unknown
        self.finish = ""  # finish_reason of the first choice
        self.day = ""  # the day whose budget and report it counts towards
        self.needs_usage = False  # a layer needs its token usage
        self.cost: int | None = None  # nano-dollars; None when the price is unknown
        self.failures: tuple[FailedAttempt, ...] = ()
        self.error: Rejection | None = None  # what the client got in place of an answer
        self.status = 0
        self.outcome = "internal_error"  # until a better one is known
        self.trace: Trace | None = None  # of a traced call
        self.lease = Lease()

    def derive(self, request_id: str) -> "Call":
        """A call that the gateway makes in place of this one: same route and deadline, no credentials."""
        call = Call(self.endpoint, request_id, _NO_CREDENTIALS, self.accepted_at)
        call.ready_at, call.deadline, call.headers = self.ready_at, self.deadline, self.headers
        call.model, call.route, call.candidate = self.model, self.route, self.candidate
        call.caller, call.priority = self.caller, self.priority
        call.candidates, call.max_wait_s, call.ceiling = self.candidates, self.max_wait_s, self.ceiling
        return call

    def overhead_s(self, now: float) -> float:
        """Seconds spent in the gateway itself: before the upstream call and after its answer.

        A stream counts up to its first event only; relaying runs at the upstream's pace.
        """
        before = self.sent_at - self.ready_at - self.queue_s
        after = 0.0 if self.stream else (self.replied_at or now) - self.answered_at
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


class Stream(Protocol):
    """A stream whose first event has arrived; the full protocol is `gateway.core.stream.EventStream`."""


class Reply:
    """The pipeline's answer: a whole body or a stream."""

    __slots__ = ("body", "status", "stream")

    def __init__(self, status: int, body: bytes = b"", stream: Stream | None = None) -> None:
        self.status = status
        self.body = body
        self.stream = stream


Handler = Callable[[Call], Awaitable[Reply | Rejection]]
Layer = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class Stack:
    """The built pipeline: `door` gates see a request's head, `handle` takes the whole call, and `entries` are
    the names of all stages in order.
    """

    door: tuple[Gate, ...]
    handle: Handler
    entries: tuple[str, ...]
