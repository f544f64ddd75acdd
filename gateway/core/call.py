"""The words of the pipeline: a call, what it holds, its reply, and what a gate and a layer are."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from gateway.core.caller import INTERACTIVE, Caller, Priority
from gateway.core.errors import Rejection
from gateway.core.tokens import Price as Price
from gateway.core.tokens import TokenEstimate as TokenEstimate  # those who know calls know these words too
from gateway.core.tokens import TokenUsage as TokenUsage
from gateway.core.trace import Trace

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
BATCH_CHAT: Final = "/v1/chat/completions/batch"
"""vLLM's: many conversations in one call. Nobody but the gateway itself calls it."""


class Candidate:
    """One way to serve a model: an upstream's name, and the model name that it knows, also as JSON.

    `price`, and `context_window` and `max_output` in tokens, are None where they are unknown; so are
    `capabilities`, and whoever has unknown ones is taken to have all.
    """

    __slots__ = (
        "capabilities",
        "context_window",
        "encoded",
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
        self.price = price
        self.context_window = context_window
        self.max_output = max_output
        self.capabilities = capabilities
        self.weight = weight


class Route:
    """A public model: its name, also as JSON, its candidates and fallbacks in the order of the config.

    `baseline` is what its calls are compared with in the savings report: the first one, if none is declared.
    """

    __slots__ = ("baseline", "candidates", "encoded", "fallbacks", "name")

    def __init__(self, name: str, encoded: bytes, candidates: tuple[Candidate, ...]) -> None:
        self.name = name
        self.encoded = encoded
        self.candidates = candidates
        self.fallbacks: tuple[Route, ...] = ()  # set when all routes are there
        self.baseline = candidates[0] if candidates else None


class Credentials:
    """What a client presented, header by header; empty strings count as absent."""

    __slots__ = ("api_key", "authorization", "x_api_key")

    def __init__(self, authorization: str | None, x_api_key: str | None, api_key: str | None) -> None:
        self.authorization = authorization
        self.x_api_key = x_api_key
        self.api_key = api_key


_NOBODY: Final = Credentials(None, None, None)


class FailedUsage(NamedTuple):
    """What one attempt used. `estimated`: no upstream has counted it; an input of 0 is then not known yet."""

    candidate: Candidate
    tokens: TokenUsage
    estimated: bool = False


CachedBy = Literal["", "hit", "collapsed"]
"""What spared a call its own upstream call: a kept answer, or another call under way for the same."""


class DeferredBody(Protocol):
    """A call that several callers share, and whose body is made when it really goes."""

    def materialise(self, call: "Call") -> None:
        """Its permit is there and `call.candidate` is set: make `call.body`. Nobody joins it after this."""

    def source_bodies(self) -> Sequence[bytes]:
        """The requests that have gone with it, as their clients sent them."""


class Call:
    """One request of a client on its way. Times are monotonic seconds; 0.0 means "not yet".

    The edge fills the head of it, gates and layers what they find out; at the end it is what metrics, log and
    limits are settled from.
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
        "estimate",
        "estimated",
        "failed_usage",
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
        self.ready_at = now  # the whole body is here
        self.sent_at = 0.0  # the current attempt began
        self.answered_at = 0.0  # the upstream's answer was complete, or a stream's first event there
        self.replied_at = 0.0  # a whole answer was ready to be written
        self.first_token_at = 0.0
        self.queue_s = 0.0
        self.deadline = math.inf  # when the client will have given up, as far as it tells
        self.headers: Mapping[str, str] = {}  # the client's, names in any case; few of them travel on
        self.body = b""
        self.model = ""  # as the client asked for it
        self.stream = False
        self.spans: Sequence[tuple[int, int]] = ()  # where the model's name stands in the body
        self.caller: Caller | None = None
        self.priority: Priority = INTERACTIVE
        self.route: Route | None = None
        self.candidate: Candidate | None = None  # the one that is tried, or will be first
        self.candidates: Sequence[Candidate] = ()  # all that may be tried, best first; else as the route says
        self.max_wait_s = math.inf  # seconds that it may wait for `candidate` while others could take it
        self.ceiling: int | None = None  # nano-dollars that it may cost at most, where its key has no more
        self.modified = False  # what goes upstream is not what the client asked for: nobody else's answer
        self.response_notes: dict[str, str] = {}  # headers of ours that tell what was decided for this call
        self.upstream_headers: Sequence[
            tuple[str, str]
        ] = ()  # headers of the upstream's answer that reach the client
        self.attempts = 0
        self.batch: DeferredBody | None = None  # of a call that others share
        self.batch_size = 0  # callers that shared the upstream call
        self.estimate: TokenEstimate | None = None  # made when somebody needs it
        self.generated = 0  # output tokens that have passed, estimated; for answers without usage
        self.tokens: TokenUsage | None = None
        self.failed_usage: tuple[FailedUsage, ...] = ()  # by attempts that came to nothing
        self.estimated = False  # no upstream has counted what it used
        self.cache_lookup: object = None  # what the cache has to know of it, where it is one to be cached
        self.cache_hit: Reply | None = None  # the kept answer that it gets: no upstream is asked
        self.cached_by: CachedBy = ""
        self.saved: TokenUsage | None = None  # what its answer took, and this call did not
        self.saved_cost: int | None = None  # the same in nano-dollars; None where the price is unknown
        self.finish = ""  # the finish_reason of its answer, of the first choice
        self.day = ""  # the one whose budget and report it counts for
        self.needs_usage = False  # somebody needs to know how many tokens it uses
        self.cost: int | None = None  # nano-dollars; None where the price is unknown
        self.status = 0
        self.outcome = "internal_error"  # until something better is known
        self.trace: Trace | None = None  # of a call that is traced
        self.lease = Lease()

    def derive(self, request_id: str) -> "Call":
        """A call that the gateway makes in place of this one: same way and same patience, nobody's key."""
        call = Call(self.endpoint, request_id, _NOBODY, self.accepted_at)
        call.ready_at, call.deadline, call.headers = self.ready_at, self.deadline, self.headers
        call.model, call.route, call.candidate = self.model, self.route, self.candidate
        call.caller, call.priority = self.caller, self.priority
        call.candidates, call.max_wait_s, call.ceiling = self.candidates, self.max_wait_s, self.ceiling
        return call

    def overhead_s(self, now: float) -> float:
        """Seconds that the gateway itself took: before the upstream call, and from its answer to ours.

        For a stream only the time up to its first event counts; relaying is part of the upstream's own pace.
        """
        before = self.sent_at - self.ready_at - self.queue_s
        after = 0.0 if self.stream else (self.replied_at or now) - self.answered_at
        return max(0.0, before + after)


class Gate(Protocol):
    """A decision that needs no waiting: no I/O, no clock, no await."""

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Let the call pass (None), or refuse it. What the call takes is put into its lease, by the gate."""


class Holder(Protocol):
    """Something that a call holds until it is over."""

    def settle(self, call: Call, now: float) -> None:
        """The call is over: take back what it held, charge what it used."""


class Lease:
    """What a call holds. Settled exactly once, in reverse order of holding, after the last body byte."""

    __slots__ = ("_held", "hold")

    def __init__(self) -> None:
        self._held: list[Holder] = []
        self.hold: Callable[[Holder], None] = self._held.append
        """To be settled when the call is over."""

    def settle(self, call: Call, now: float) -> None:
        """Let every holder take back its own; a second settling finds nothing to do."""
        try:
            while self._held:
                self._held.pop().settle(call, now)
        finally:
            if self._held:  # one has failed: the others take back theirs all the same
                self.settle(call, now)


class Stream(Protocol):
    """A stream whose first event is there, see `gateway.core.stream`."""


class Reply:
    """What the pipeline answers: a whole body or a stream."""

    __slots__ = ("body", "status", "stream")

    def __init__(self, status: int, body: bytes = b"", stream: Stream | None = None) -> None:
        self.status = status
        self.body = body
        self.stream = stream


Handler = Callable[[Call], Awaitable[Reply | Rejection]]
Layer = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class Stack:
    """The built pipeline. `door` sees a request's head, `handle` the whole call; `entries` name it all."""

    door: tuple[Gate, ...]
    handle: Handler
    entries: tuple[str, ...]
