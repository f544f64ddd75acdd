"""One upstream at run time: what is sent to it besides the client's body, and what its refusals mean."""

from collections.abc import Awaitable, Mapping, Sequence
from urllib.parse import urlsplit

from gateway.call import Call, Candidate
from gateway.clock import unix_now
from gateway.edge.transport import Exchange, Transport
from gateway.errors import PASSED_THROUGH, UPSTREAM_AUTH_FAILED, Failure, Kind, upstream_status
from gateway.wire import headers as wire_headers
from gateway.wire import splice
from gateway.wire.encoding import decoded
from gateway.wire.mask import Masker
from gateway.wire.openai import UpstreamError, read_error
from gateway.wire.retry_after import retry_after

LONGEST_ERROR = 64 * 1024
"""Bytes of an error body that are read; the rest of it is not wanted."""

_FIRST_BYTE_S = 120.0  # a stream's default


class Upstream:
    """Sends calls to one upstream and reads its refusals. Owns a transport, shares nothing."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        masker: Masker,
        forward_headers: Sequence[str] = (),
        connect_s: float,
        first_byte_s: float | None,
        idle_s: float,
        total_s: float,
    ) -> None:
        """Durations in seconds; `first_byte_s` None is 120 for streams and `total_s` for the rest."""
        self.name = name
        self.transport = transport
        self.idle_s = idle_s
        self.total_s = total_s
        self._mask = masker
        self._travelling = (*wire_headers.TRACE_HEADERS, *(name.lower() for name in forward_headers))
        self._connect_s = connect_s
        self._first_byte_s = first_byte_s

    def first_byte_s(self, *, stream: bool) -> float:
        """Seconds from sending a call to the first byte of its answer."""
        if self._first_byte_s is not None:
            return min(self._first_byte_s, self.total_s)
        return min(_FIRST_BYTE_S, self.total_s) if stream else self.total_s

    def send(self, call: Call, candidate: Candidate) -> Awaitable[Exchange]:
        """Send the client's body with the candidate's model name in it. Raises Failure when awaited."""
        body = splice.parts(call.body, call.spans, candidate.encoded)
        deadline = min(call.accepted_at + self.total_s, call.sent_at + self.first_byte_s(stream=call.stream))
        return self.transport.send(
            call.endpoint.removeprefix("/v1"), self._headers(call), body, self._connect_s, deadline
        )

    def failure(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> Failure:
        """What an error answer means (`errors.upstream_status`); in a 200 the error's own `code` counts."""
        told = read_error(body)
        if status < 400:
            status = told.status if told is not None and told.status is not None else 502
        kind = upstream_status(status)
        if status in PASSED_THROUGH:
            told = told or UpstreamError(f"Upstream `{self.name}` refused the request.")
            seen, mask = kind, self._mask
            code = mask(told.code) if told.code else ""
            kind = Kind(status, mask(told.type) if told.type else seen.type, code, seen.outcome, seen.final)
            return Failure(kind, mask(told.message), param=mask(told.param) if told.param else None)
        message = f"Upstream `{self.name}` answered with status {status}."
        if kind is UPSTREAM_AUTH_FAILED:
            message = f"Upstream `{self.name}` refused the gateway's own credentials."
        elif told is not None:
            message = f"{message[:-1]}: {self._mask(told.message)}"
        if kind.final:  # no retry can help, whatever the upstream says
            return Failure(kind, message)
        wait = retry_after(headers, unix_now()) if headers is not None else None
        advice = _should_retry(headers)
        if wait is None and advice is not False:
            wait = 1.0
        return Failure(kind, message, retry_after=wait, should_retry=advice)

    def plain(self, exchange: Exchange, body: bytes, limit: int) -> bytes | None:
        """The body without a compression that nobody asked for; None when it cannot be undone."""
        return decoded(body, exchange.headers.get("content-encoding", ""), limit)

    def _headers(self, call: Call) -> list[tuple[str, str]]:
        sent = [("x-request-id", call.request_id)]
        given = call.headers
        for name in self._travelling:
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
