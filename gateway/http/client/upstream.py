"""One upstream at run time: what is sent to it besides the client's body, and what its refusals mean."""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from gateway.core.call import EMBEDDINGS, Call, Candidate
from gateway.core.clock import unix_now
from gateway.core.errors import (
    CONTEXT_LENGTH_EXCEEDED,
    FIRST_BYTE,
    PASSED_THROUGH,
    STATUS,
    TOTAL,
    UPSTREAM_AUTH_FAILED,
    UPSTREAM_PATH_UNKNOWN,
    UPSTREAM_QUOTA_SPENT,
    Cause,
    ErrorKind,
    UpstreamFailure,
    upstream_status,
)
from gateway.http.client.transport import Exchange, Transport
from gateway.resilience.classification import is_spent, is_wrong_path
from gateway.wire.http import header_policy as wire_headers
from gateway.wire.http.content_encoding import decoded
from gateway.wire.http.redaction import Redactor
from gateway.wire.http.retry_after import retry_after
from gateway.wire.json import splice
from gateway.wire.json.members import Edit, edited
from gateway.wire.openai import cache_salt, stream_options
from gateway.wire.openai.overflow_messages import overflow
from gateway.wire.openai.peek import UpstreamError, read_error, read_text

LONGEST_ERROR = 64 * 1024
"""Bytes of an error body that are read; the rest of it is not wanted."""

_MAY_BE_TEXT = frozenset({400, 413, 422})  # not 404: such a text is about the path
_MAY_OVERFLOW = frozenset({400, 413, 422, 500, 502})  # 502: in a 200 without a numeric code, too
_FIRST_BYTE_S = 120.0  # a stream's default


class UpstreamClient:
    """Sends calls to one upstream and reads its refusals. Owns a transport, shares nothing."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        masker: Redactor,
        forward_headers: Sequence[str] = (),
        connect_s: float,
        first_byte_s: float | None,
        idle_s: float,
        total_s: float,
        salted: bool = False,
    ) -> None:
        """Durations in seconds; `first_byte_s` None is 120 for streams and `total_s` for the rest.

        `salted`: each tenant's prefixes are kept apart in the engine's own cache.
        """
        self.name = name
        self.transport = transport
        self.idle_s = idle_s
        self.total_s = total_s
        self._mask = masker
        self._forwarded_headers = (*wire_headers.TRACE_HEADERS, *(name.lower() for name in forward_headers))
        self._connect_s = connect_s
        self._first_byte_s = first_byte_s
        self._tells_usage = True  # until it has refused to be asked
        self._salted = salted

    def first_byte_s(self, *, stream: bool) -> float:
        """Seconds from sending a call to the first byte of its answer."""
        if self._first_byte_s is not None:
            return min(self._first_byte_s, self.total_s)
        return min(_FIRST_BYTE_S, self.total_s) if stream else self.total_s

    def deadline(self, call: Call) -> float:
        """When the call has to be answered, or its stream begun: the sooner of both sides' limits."""
        at = call.accepted_at + self.total_s
        return at if at < call.deadline else call.deadline

    def usage_edits(self, call: Call) -> Sequence[Edit]:
        """The edits by which a stream's request asks for usage; none where the client does, or need not."""
        if not call.needs_usage or not call.stream or not self._tells_usage or call.endpoint == EMBEDDINGS:
            return ()
        return stream_options.asking(call.body)

    def send(self, call: Call, candidate: Candidate, asks: Sequence[Edit] = ()) -> Awaitable[Exchange]:
        """Send the client's body with the candidate's model name in it, and these edits.

        Raises Failure when awaited.
        """
        if self._salted and call.endpoint != EMBEDDINGS and call.caller is not None:
            asks = (*asks, *cache_salt.salting(call.body, cache_salt.salt_of(call.caller.name)))
        if asks:
            named = ((start, end, candidate.encoded) for start, end in call.spans if end > start)
            body = edited(call.body, (*asks, *named))
        else:
            body = splice.parts(call.body, call.spans, candidate.encoded)
        deadline = self.deadline(call)
        late: Cause = TOTAL
        first_byte = call.sent_at + self.first_byte_s(stream=call.stream)
        if first_byte < deadline:
            deadline, late = first_byte, FIRST_BYTE
        path = call.endpoint.removeprefix("/v1")
        return self.transport.send(path, self._headers(call), body, self._connect_s, deadline, late)

    async def probe(self, endpoint: str, body: bytes, deadline: float) -> int:
        """The status with which it answers this body, nothing more. Raises Failure."""
        path = endpoint.removeprefix("/v1")
        exchange = await self.transport.send(path, [], (body,), self._connect_s, deadline, TOTAL)
        exchange.abort()
        return exchange.status

    async def resend_without_usage(self, call: Call, candidate: Candidate, error: bytes) -> Exchange | None:
        """Once more without asking for usage, which this error may be about; None if it is not.

        Where that helps, this upstream is not asked again. Raises Failure.
        """
        if not stream_options.refused(error):
            return None
        call.attempts += 1
        exchange = await self.send(call, candidate)
        if 200 <= exchange.status < 300:
            self._tells_usage = False
        return exchange

    def failure(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> UpstreamFailure:
        """What an error answer means (`errors.upstream_status`); in a 200 the error's own `code` counts."""
        told = read_error(body) or (read_text(body) if status in _MAY_BE_TEXT else None)
        answered = f"answered with status {status}"
        wrong_path = is_wrong_path(status, None if told is None else told.message)
        if status < 300:
            inner = told.status if told is not None else None
            answered = "answered with an error" if inner is None else f"answered with status {inner}"
            status = inner or 502
        elif status < 400:  # a redirect, which is not followed
            status = 502
        wait = retry_after(headers, unix_now()) if headers is not None else None
        spent = told is not None and is_spent(status, told.message, wait, told.code, told.type)
        if told is not None and status in _MAY_OVERFLOW and overflow(told.message, told.code, told.type):
            status = status if status in PASSED_THROUGH else CONTEXT_LENGTH_EXCEEDED.status
            kind = replace(CONTEXT_LENGTH_EXCEEDED, status=status)
        elif wrong_path:
            kind = UPSTREAM_PATH_UNKNOWN
        elif status in PASSED_THROUGH:
            kind = self._as_told(status, told)
        else:
            kind = UPSTREAM_QUOTA_SPENT if spent and status == 429 else upstream_status(status)
        return UpstreamFailure(
            kind,
            self._message(status, kind, told, answered),
            cause=STATUS,
            status=status,
            param=self._mask(told.param) if told and told.param and status in PASSED_THROUGH else None,
            retry_after=wait,
            should_retry=_should_retry(headers),
            quota_exhausted=spent,
        )

    def _as_told(self, status: int, told: UpstreamError | None) -> ErrorKind:
        seen, mask = upstream_status(status), self._mask
        given_type = mask(told.type) if told is not None and told.type else seen.type
        return replace(seen, type=given_type, code=mask(told.code) if told is not None and told.code else "")

    def _message(self, status: int, kind: ErrorKind, told: UpstreamError | None, answered: str) -> str:
        if kind is UPSTREAM_AUTH_FAILED:
            return f"Upstream `{self.name}` refused the gateway's own credentials."
        message = self._mask(told.message) if told is not None else ""
        if status in PASSED_THROUGH and kind is not UPSTREAM_PATH_UNKNOWN:
            return message or f"Upstream `{self.name}` refused the request."
        return f"Upstream `{self.name}` {answered}{f': {message}' if message else '.'}"

    def decode_body(self, exchange: Exchange, body: bytes, limit: int) -> bytes | None:
        """The body without a compression that nobody asked for; None when it cannot be undone."""
        return decoded(body, exchange.headers.get("content-encoding", ""), limit)

    def _headers(self, call: Call) -> list[tuple[str, str]]:
        sent = [("x-request-id", call.request_id)]
        given, trace = call.headers, call.trace
        own: Sequence[str] = ()
        if trace is not None:
            sent.append(("traceparent", trace.traceparent()))
            own = wire_headers.TRACE_HEADERS[: 1 if trace.parent_id else 2]
        for name in self._forwarded_headers:
            if name in own:
                continue
            if name in given and name not in wire_headers.named_by_connection(given.get("connection")):
                value = wire_headers.clean(given[name])
                if value:
                    sent.append((name, value))
        return sent


def fixed_headers(api_key: str | None, extra: Mapping[str, str], agent: str) -> list[tuple[str, str]]:
    """Headers of every call to an upstream; the config's own ones win over the gateway's."""
    fields = {
        "user-agent": agent,
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-type": "application/json",
    }
    if api_key:
        fields["authorization"] = f"Bearer {api_key}"
    fields |= {name.lower(): value for name, value in extra.items()}
    return list(fields.items())


def secrets_of(base_url: str, api_key: str | None, extra: Mapping[str, str]) -> list[str]:
    """Texts that must not appear in anything a client reads: key, host and the values of extra headers."""
    parsed = urlsplit(base_url)
    return [text for text in (api_key, base_url, parsed.netloc, parsed.hostname, *extra.values()) if text]


def _should_retry(headers: Mapping[str, str] | None) -> bool | None:
    """What the upstream says itself on trying again."""
    told = headers.get("x-should-retry") if headers is not None else None
    return {"true": True, "false": False}.get(told or "")
