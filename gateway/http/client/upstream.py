"""One upstream at run time: the requests sent to it, and the meaning of its error answers."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from gateway.core.call import Call, Candidate
from gateway.core.clock import unix_now
from gateway.core.endpoint import Endpoint
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    FIRST_BYTE,
    PASSED_THROUGH,
    STATUS,
    TOTAL,
    UPSTREAM_AUTH_FAILED,
    UPSTREAM_PATH_UNKNOWN,
    Cause,
    ErrorKind,
    UpstreamFailure,
    upstream_status,
)
from gateway.http.client.transport import Exchange, SendOptions, Transport, too_large
from gateway.resilience.classification import is_wrong_path
from gateway.wire.http import header_policy
from gateway.wire.http.content_encoding import DecodedTooLarge, decoded
from gateway.wire.http.redaction import Redactor
from gateway.wire.http.retry_after import retry_after
from gateway.wire.json import splice
from gateway.wire.json.members import Edit, edited
from gateway.wire.openai import cache_salt, stream_options
from gateway.wire.openai.account_trouble import is_account_trouble
from gateway.wire.openai.engine_full import is_engine_full
from gateway.wire.openai.overflow_messages import overflow
from gateway.wire.openai.peek import UpstreamError, read_error, read_text
from gateway.wire.openai.unknown_model import is_unknown_model
from gateway.wire.request_body import fields_of

LONGEST_ERROR = 64 * 1024
"""Bytes of an error body that are read; a longer one is ignored."""

_MAY_BE_TEXT = frozenset({400, 413, 422})  # not 404: its text is about the path
_MAY_SAY_WHEN = frozenset({408, 429, 498, 502, 503, 529})
"""Statuses whose error may say only in its words how long to wait."""
_MAY_OVERFLOW = frozenset({400, 413, 422, 500, 502})  # 502 also stands for a 200 without a numeric code
_LOGGED_WORDS = 300
_FIRST_BYTE_S = 120.0  # default for streams


class UpstreamClient:
    """Sends calls to one upstream over its own transport and reads its error answers."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        redactor: Redactor,
        forward_headers: Sequence[str] = (),
        own_headers: Collection[str] = (),
        connect_s: float,
        first_byte_s: float | None,
        idle_s: float,
        total_s: float,
        salted: bool = False,
        ask_usage: bool = True,
    ) -> None:
        """Durations in seconds; `first_byte_s` None means 120 for streams and `total_s` for the rest.

        `own_headers`: names of the headers that the config sets for every call. `salted`: prefixes of different
        keys do not share the engine's own cache. `ask_usage`: ask for the usage of streams whose clients did not.
        """
        self.name = name
        self.transport = transport
        self.idle_s = idle_s
        self.total_s = total_s
        self._redact = redactor
        self._forwarded_headers = (*header_policy.TRACE_HEADERS, *(name.lower() for name in forward_headers))
        self._settled = frozenset((*(name.lower() for name in own_headers), *self._forwarded_headers))
        self._connect_s = connect_s
        self._first_byte_s = first_byte_s
        self._ask_usage = ask_usage
        self._refusing: set[str] = set()  # models that have refused `stream_options`
        self._salted = salted

    def first_byte_s(self, *, stream: bool) -> float:
        """Seconds allowed from sending a call to the first byte of its answer."""
        if self._first_byte_s is not None:
            return min(self._first_byte_s, self.total_s)
        return min(_FIRST_BYTE_S, self.total_s) if stream else self.total_s

    def deadline(self, call: Call) -> float:
        """When the call must be answered or its stream begun: the earlier of upstream and client limit."""
        at = call.timing.accepted_at + self.total_s
        return at if at < call.timing.deadline else call.timing.deadline

    def usage_edits(self, call: Call) -> Sequence[Edit]:
        """The edits that ask for usage in a stream's request; none if the client asks or nobody needs it."""
        if not call.usage.needed or not call.request.stream or not self._ask_usage:
            return ()
        if self._refusing and call.routing.candidate.model in self._refusing:
            return ()
        if not call.request.endpoint.asks_usage:
            return ()
        return stream_options.usage_edits(fields_of(call.request), call.request.body)

    def send(self, call: Call, candidate: Candidate, edits: Sequence[Edit] = ()) -> Awaitable[Exchange]:
        """Send the client's body with the candidate's model name and these edits.

        Raises UpstreamFailure when awaited.
        """
        asked, endpoint = call.request, call.request.endpoint
        if self._salted and endpoint.generates and not endpoint.takes_form:
            edits = (*edits, *cache_salt.salt_edits(asked.body, cache_salt.salt_of(call.caller.name)))
        if edits:
            names = ((start, end, candidate.encoded) for start, end in asked.spans if end > start)
            body = edited(asked.body, (*edits, *names))
        else:
            name = candidate.model.encode() if endpoint.takes_form else candidate.encoded
            body = splice.parts(asked.body, asked.spans, name)
        deadline = self.deadline(call)
        timeout_cause: Cause = TOTAL
        first_byte = call.timing.sent_at + self.first_byte_s(stream=call.request.stream)
        if first_byte < deadline:
            deadline, timeout_cause = first_byte, FIRST_BYTE
        path = asked.target or endpoint.upstream_path
        fields, connect_s, send = self._headers(call), self._connect_s, self.transport.send
        if endpoint.at_root or endpoint.takes_form or asked.method != "POST":
            again, options = call.attempts == 1, SendOptions(asked.method, endpoint.at_root, endpoint.takes_form)
            return send(path, fields, body, connect_s, deadline, timeout_cause, again, options)
        if call.attempts > 1:  # after a failed attempt a close at once is no coincidence: engines may die of it
            return send(path, fields, body, connect_s, deadline, timeout_cause, resend=False)
        return send(path, fields, body, connect_s, deadline, timeout_cause)

    async def probe(self, endpoint: Endpoint, body: bytes, deadline: float) -> int:
        """The status of the answer to this body. Raises UpstreamFailure."""
        path = endpoint.upstream_path
        exchange = await self.transport.send(path, [], (body,), self._connect_s, deadline, TOTAL)
        exchange.abort()
        return exchange.status

    def refuses_usage(self, status: int, error: bytes) -> bool:
        """Whether this error answer to a call that asked for usage may be about that."""
        parsed = read_error(error)
        param = None if parsed is None else parsed.param
        return stream_options.refused(error.decode("utf-8", "replace"), param, status)

    def stop_asking(self, candidate: Candidate) -> None:
        """Never ask this model for usage again: it has answered without, after a refusal."""
        self._refusing.add(candidate.model)

    def failure(
        self, status: int, body: bytes, model: str, headers: Mapping[str, str] | None = None
    ) -> UpstreamFailure:
        """The meaning of an error answer (`errors.upstream_status`); in a 200 the error's `code` counts.

        `model` is the name that was sent.
        """
        error = read_error(body) or (read_text(body) if status in _MAY_BE_TEXT else None)
        answered = f"answered with status {status}"
        wrong_path = is_wrong_path(status, None if error is None else error.message)
        if status < 300:
            inner = error.status if error is not None else None
            answered = "answered with an error" if inner is None else f"answered with status {inner}"
            status = inner or 502
        elif status < 400:  # a redirect, which is not followed
            status = 502
        wait = retry_after(headers, unix_now()) if headers is not None else None
        if wait is None and error is not None and status in _MAY_SAY_WHEN:
            wait = error.wait
        told = status  # by the upstream, before it becomes one of ours
        account = error is not None and is_account_trouble(
            status, error.message, wait, error.code, error.type, *error.reasons
        )
        if error is not None and status in _MAY_OVERFLOW and overflow(error.message, error.code, error.type):
            status = status if status in PASSED_THROUGH else CONTEXT_LENGTH_EXCEEDED.status
            kind = replace(CONTEXT_LENGTH_EXCEEDED, status=status)
        elif account or status == 402:
            kind = UPSTREAM_AUTH_FAILED
        elif wrong_path:
            kind = UPSTREAM_PATH_UNKNOWN
        elif status in PASSED_THROUGH:
            kind = self._passed_through(status, error)
        else:
            kind = upstream_status(status)
        unknown_model = (
            error is not None
            and kind.outcome == "client_error"
            and is_unknown_model(status, error.message, model, error.code, error.type)
        )
        if unknown_model:  # the client sees what the upstream says, but did not choose that name
            kind = replace(kind, outcome="upstream_error")
        return UpstreamFailure(
            kind,
            self._message(status, kind, error, answered),
            cause=STATUS,
            status=status,
            param=self._redact(error.param) if error and error.param and status in PASSED_THROUGH else None,
            retry_after=wait,
            should_retry=_should_retry(headers),
            account_trouble=account,
            unknown_model=unknown_model,
            engine_full=status == 503 and error is not None and is_engine_full(error.message),
            details=self._details(error) if kind.outcome == "client_error" else None,
            logged=self._logged(told, kind, error, answered, wait, model if unknown_model else ""),
        )

    def _details(self, error: UpstreamError | None) -> Mapping[str, object] | None:
        """The further members of an error that is the client's own, masked; None if there are none."""
        return self._redact.members(error.further) or None if error is not None else None

    def _passed_through(self, status: int, error: UpstreamError | None) -> ErrorKind:
        """The row of a passed-through status, with the upstream's own type and code."""
        kind = upstream_status(status)
        if error is None:
            return kind
        type_ = self._redact(error.type) if error.type else kind.type
        return replace(kind, type=type_, code=self._redact(error.code) if error.code else "")

    def _message(self, status: int, kind: ErrorKind, error: UpstreamError | None, answered: str) -> str:
        if kind is UPSTREAM_AUTH_FAILED:
            return f"Upstream `{self.name}` refused the gateway's own credentials or account."
        message = self._redact(error.message) if error is not None else ""
        if status in PASSED_THROUGH and kind is not UPSTREAM_PATH_UNKNOWN:
            return message or f"Upstream `{self.name}` refused the request."
        return f"Upstream `{self.name}` {answered}{f': {message}' if message else '.'}"

    def _logged(
        self, status: int, kind: ErrorKind, error: UpstreamError | None, answered: str, wait: float | None, unknown: str
    ) -> str:
        """The message for the log: an upstream's words only where they are about the account, not the request.

        `wait` is the time that it asks for, in seconds; `unknown` a model that it does not know.
        """
        if unknown:
            return f"Upstream `{self.name}` {answered}: it does not know the model `{unknown}`."
        if kind is UPSTREAM_PATH_UNKNOWN:
            return f"Upstream `{self.name}` {answered}: it does not know the path; see its base_url."
        if kind is not UPSTREAM_AUTH_FAILED:
            return f"Upstream `{self.name}` {answered}" + (f" and asks to wait {wait:g} s." if wait else ".")
        words = self._redact(error.message)[:_LOGGED_WORDS] if error is not None else ""
        refused = f"Upstream `{self.name}` refused the gateway's own credentials or account (status {status})"
        return f"{refused}: {words}" if words else f"{refused}."

    def decode_body(self, exchange: Exchange, body: bytes, limit: int) -> bytes | None:
        """The body, decompressed if the upstream compressed it unasked; None if it cannot be decoded.

        Raises UpstreamFailure if it is larger than `limit` bytes.
        """
        try:
            return decoded(body, exchange.headers.get("content-encoding", ""), limit)
        except DecodedTooLarge:
            raise too_large(self.name, limit) from None

    def _headers(self, call: Call) -> list[tuple[str, str]]:
        headers = [("x-request-id", call.request.id)]
        received, trace = call.request.headers, call.trace
        replaced: Sequence[str] = ()
        if trace is not None:
            headers.append(("traceparent", trace.traceparent()))
            replaced = header_policy.TRACE_HEADERS[: 1 if trace.parent_id else 2]
        for name in self._forwarded_headers:
            if name in replaced:
                continue
            if name in received and name not in header_policy.named_by_connection(received.get("connection")):
                value = header_policy.clean(received[name])
                if value:
                    headers.append((name, value))
        if call.request.endpoint.takes_form:
            headers.append(("content-type", received["content-type"]))
        for name, otherwise in call.request.endpoint.travelling:
            if name not in self._settled and (value := header_policy.clean(received.get(name, otherwise))):
                headers.append((name, value))
        return headers


def fixed_headers(
    api_key: str | None, extra: Mapping[str, str], agent: str, *, bearer: bool = True
) -> list[tuple[str, str]]:
    """Headers of every call to an upstream; those of the config override the gateway's.

    `bearer`: the key is a bearer token; else it is an `x-api-key`, as Anthropic takes it.
    """
    fields = {
        "user-agent": agent,
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-type": "application/json",
    }
    if api_key:
        fields |= {"authorization": f"Bearer {api_key}"} if bearer else {"x-api-key": api_key}
    fields |= {name.lower(): value for name, value in extra.items()}
    return list(fields.items())


def secrets_of(base_url: str, api_key: str | None, extra: Mapping[str, str]) -> list[str]:
    """Texts that must not reach a client: key, host and the values of extra headers."""
    parsed = urlsplit(base_url)
    return [text for text in (api_key, base_url, parsed.netloc, parsed.hostname, *extra.values()) if text]


def _should_retry(headers: Mapping[str, str] | None) -> bool | None:
    """The upstream's own advice on retrying, if any."""
    advice = headers.get("x-should-retry") if headers is not None else None
    return {"true": True, "false": False}.get(advice or "")
