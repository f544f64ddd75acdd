"""What the gateway knows of an HTTP endpoint. The pipeline asks the endpoint of a call, and knows none by name.

The endpoints themselves are in `gateway/wire/`, one file each; `gateway/wire/endpoints.py` lists them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from gateway.core.errors import ErrorKind, Rejection
from gateway.core.request_fields import RequestFields
from gateway.core.stream import StreamReader
from gateway.core.tokens import NO_OUTPUT, OutputCaps, TokenUsage

FORM: Final = "multipart/form-data"


class RequestHead(NamedTuple):
    """What routing needs of a request's body: the model, and where its name is in the bytes.

    `engine_fields` are the fields in it that steer an engine. `fields` is None where the body is no JSON object.
    """

    model: str
    stream: bool
    spans: tuple[tuple[int, int], ...]
    engine_fields: tuple[str, ...] = ()
    fields: RequestFields | None = None


class AnswerSummary(Struct, gc=False):
    """What is known of a whole answer.

    `model` is the name in it, None without one. `error`: it is an error in spite of its status. `failed_choice`:
    one of its choices failed. `damaged`: parts of it are no text, so no client can read it. `failed`: it tells that
    the work has failed, and passes as it came.
    """

    model: str | None = None
    finish: str = ""
    tokens: TokenUsage | None = None
    error: bool = False
    failed_choice: bool = False
    damaged: bool = False
    failed: bool = False


class ErrorShape(Protocol):
    """How the clients of an endpoint are told of failures."""

    heartbeat: bytes
    """What keeps a silent stream alive."""

    def status(self, kind: ErrorKind) -> int:
        """The status of this error."""

    def body(self, rejection: Rejection, request_id: str) -> bytes:
        """The body of an error response."""

    def event(self, rejection: Rejection, request_id: str) -> bytes:
        """The last event of a broken stream."""


def no_output(fields: RequestFields | None) -> OutputCaps:
    """The caps of a request that generates nothing."""
    return NO_OUTPUT


class Endpoint(str):
    """An endpoint is its path, with what the gateway knows of it. As text it is the label in metrics and logs."""

    name: str
    errors: ErrorShape
    head: Callable[[bytes, str], RequestHead | Rejection]
    answer: Callable[[bytes], AnswerSummary | None]
    caps: Callable[[RequestFields | None], OutputCaps]
    reader: Callable[[str, bytes, bool], StreamReader] | None
    generates: bool
    conversation: bool
    asks_usage: bool
    payload: str
    merged: "Endpoint | None"
    methods: tuple[str, ...]
    media_types: tuple[str, ...]
    cacheable: bool
    internal: bool
    ours: bool
    travelling: tuple[tuple[str, str], ...]
    at_root: bool
    keeps: bool
    takes_query: bool
    any_answer: bool
    takes_form: bool
    upstream_path: str

    def __new__(
        cls,
        path: str,
        name: str,
        *,
        errors: ErrorShape,
        head: Callable[[bytes, str], RequestHead | Rejection],
        answer: Callable[[bytes], AnswerSummary | None],
        caps: Callable[[RequestFields | None], OutputCaps] = no_output,
        reader: Callable[[str, bytes, bool], StreamReader] | None = None,
        conversation: bool = False,
        asks_usage: bool = False,
        payload: str = "",
        merged: "Endpoint | None" = None,
        methods: tuple[str, ...] = ("POST",),
        media_types: tuple[str, ...] = ("application/json",),
        cacheable: bool = False,
        internal: bool = False,
        ours: bool = False,
        travelling: tuple[tuple[str, str], ...] = (),
        at_root: bool = False,
        keeps: bool = False,
        takes_query: bool = False,
        any_answer: bool = False,
    ) -> "Endpoint":
        """`name` is what `upstreams.*.serves` calls it.

        `head(body, content type)` reads a request, `answer(body)` a whole answer; None if that is not JSON.
        `caps` bounds the output; by default there is none. `reader(public model, the same as JSON, strip usage)`
        reads a stream; None: answers are never streamed. `conversation`: `messages` that share one window.
        `asks_usage`: a stream reports its usage only if `stream_options` asks for it. `payload` is the member
        that merging may combine, `merged` the engine's endpoint for it if it is another. `cacheable`: the
        answer cache knows its requests and answers. `internal`: only the gateway itself calls it. `ours`: the
        gateway answers it itself. `travelling`: headers of the client that go upstream, each with its value where
        the client sent none; empty: none. `at_root`: upstreams serve it beside their `/v1`, not below it.
        `keeps`: the upstream keeps its answers, and calls may name one. `takes_query`: a query goes upstream.
        `any_answer`: answers may be something else than JSON.
        """
        self = super().__new__(cls, path)
        self.name = name
        self.errors = errors
        self.head = head
        self.answer = answer
        self.caps = caps
        self.reader = reader
        self.generates = caps is not no_output
        self.conversation = conversation
        self.asks_usage = asks_usage
        self.payload = payload
        self.merged = merged
        self.methods = methods
        self.media_types = media_types
        self.cacheable = cacheable
        self.internal = internal
        self.ours = ours
        self.travelling = travelling
        self.at_root = at_root
        self.keeps = keeps
        self.takes_query = takes_query
        self.any_answer = any_answer
        self.takes_form = FORM in media_types
        self.upstream_path = path.removeprefix("/v1")
        return self
