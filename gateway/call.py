"""The words of the pipeline: a call, what it holds, its reply, and what a gate and a layer are."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from gateway.caller import INTERACTIVE, Caller, Priority
from gateway.errors import Refusal

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"
BATCH_CHAT: Final = "/v1/chat/completions/batch"
"""vLLM's: many conversations in one call. Nobody but the gateway itself calls it."""


class Price(NamedTuple):
    """Nano-dollars per million tokens."""

    input: int
    output: int
    cached_input: int


class Candidate:
    """One way to serve a model: an upstream's name, and the model name that it knows, also as JSON.

    `price`, and `context_window` in tokens, are None where they are unknown.
    """

    __slots__ = ("context_window", "encoded", "model", "price", "upstream")

    def __init__(
        self,
        upstream: str,
        model: str,
        encoded: bytes,
        price: Price | None = None,
        context_window: int | None = None,
    ) -> None:
        self.upstream = upstream
        self.model = model
        self.encoded = encoded
        self.price = price
        self.context_window = context_window


class Route:
    """A public model: its name, also as JSON, its candidates and fallbacks in the order of the config."""

    __slots__ = ("candidates", "encoded", "fallbacks", "name")

    def __init__(self, name: str, encoded: bytes, candidates: tuple[Candidate, ...]) -> None:
        self.name = name
        self.encoded = encoded
        self.candidates = candidates
        self.fallbacks: tuple[Route, ...] = ()  # set when all routes are there


class Credentials:
    """What a client presented, header by header; empty strings count as absent."""

    __slots__ = ("api_key", "authorization", "x_api_key")

    def __init__(self, authorization: str | None, x_api_key: str | None, api_key: str | None) -> None:
        self.authorization = authorization
        self.x_api_key = x_api_key
        self.api_key = api_key


_NOBODY: Final = Credentials(None, None, None)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a call used. `cached_input` and `reasoning` are parts of `input` and `output`, not beside them."""

    input: int = 0
    output: int = 0
    cached_input: int = 0
    reasoning: int = 0


class Estimate(NamedTuple):
    """Tokens that a call is expected to use, of all `choices` of its answer together.

    `capped` tells that the client set the output's bound itself; `weight` is what the input was judged by.
    """

    input: int
    output: int
    capped: bool
    choices: int = 1
    weight: Sequence[int] = ()


class Sealed(Protocol):
    """A call that several callers share, and whose body is made when it really goes."""

    def seal(self, call: "Call") -> None:
        """Its permit is there and `call.candidate` is set: make `call.body`. Nobody joins it after this."""

    def bodies(self) -> Sequence[bytes]:
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
        "caller",
        "candidate",
        "ceiling",
        "cost",
        "counted",
        "credentials",
        "day",
        "deadline",
        "endpoint",
        "estimate",
        "finish",
        "first_token_at",
        "generated",
        "headers",
        "lease",
        "model",
        "notes",
        "order",
        "outcome",
        "passing",
        "priority",
        "queue_s",
        "ready_at",
        "replied_at",
        "request_id",
        "route",
        "sent_at",
        "spans",
        "status",
        "stream",
        "tokens",
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
        self.order: Sequence[Candidate] = ()  # all that may be tried, best first; empty: as the route lists them
        self.ceiling: int | None = None  # nano-dollars that it may cost at most, where its key has no more
        self.notes: dict[str, str] = {}  # headers of ours that tell what was decided for this call
        self.passing: Sequence[tuple[str, str]] = ()  # headers of the upstream's answer that reach the client
        self.attempts = 0
        self.batch: Sealed | None = None  # of a call that others share
        self.batch_size = 0  # callers that shared the upstream call
        self.estimate: Estimate | None = None  # made when somebody needs it
        self.generated = 0  # output tokens that have passed, estimated; for answers without usage
        self.tokens: Tokens | None = None
        self.finish = ""  # the finish_reason of its answer, of the first choice
        self.day = ""  # the one whose budget and report it counts for
        self.counted = False  # somebody needs to know how many tokens it uses
        self.cost: int | None = None  # nano-dollars; None where the price is unknown
        self.status = 0
        self.outcome = "internal_error"  # until something better is known
        self.lease = Lease()

    def stand_in(self, request_id: str) -> "Call":
        """A call that the gateway makes in place of this one: same way and same patience, nobody's key."""
        call = Call(self.endpoint, request_id, _NOBODY, self.accepted_at)
        call.ready_at, call.deadline, call.headers = self.ready_at, self.deadline, self.headers
        call.model, call.route, call.candidate = self.model, self.route, self.candidate
        call.caller, call.priority = self.caller, self.priority
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

    def admit(self, call: Call, now: float) -> Refusal | None:
        """Let the call pass (None), or refuse it. What the call takes is put into its lease, by the gate."""


class Holder(Protocol):
    """Something that a call holds until it is over."""

    def settle(self, call: Call, now: float) -> None:
        """The call is over: take back what it held, charge what it used."""


class Lease:
    """What a call holds. Settled exactly once, in reverse order of holding, after the last body byte."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Holder] = []

    def hold(self, holder: Holder) -> None:
        """To be settled when the call is over."""
        self._held.append(holder)

    def settle(self, call: Call, now: float) -> None:
        """Let every holder take back its own; a second settling finds nothing to do."""
        try:
            while self._held:
                self._held.pop().settle(call, now)
        finally:
            if self._held:  # one has failed: the others take back theirs all the same
                self.settle(call, now)


class Stream(Protocol):
    """An upstream's stream whose first event is there. The edge that made it also pumps it to the client."""


class Reply:
    """What the pipeline answers: a whole body or a stream."""

    __slots__ = ("body", "status", "stream")

    def __init__(self, status: int, body: bytes = b"", stream: Stream | None = None) -> None:
        self.status = status
        self.body = body
        self.stream = stream


Handler = Callable[[Call], Awaitable[Reply | Refusal]]
Layer = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class Stack:
    """The built pipeline. `door` sees a request's head, `handle` the whole call; `entries` name it all."""

    door: tuple[Gate, ...]
    handle: Handler
    entries: tuple[str, ...]
