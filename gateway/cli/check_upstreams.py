"""`sluice check --connect`: asks every upstream for its models and names the setting that is wrong.

It goes the way that calls go: through the proxy where the transport uses it, and with the same trusted CAs.
"""

import asyncio
import os
import ssl
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from gateway.assembly.upstreams import first_hop, upstream_headers
from gateway.config.model import Config, UpstreamConfig
from gateway.config.problems import did_you_mean, join, quoted
from gateway.http.client.aiohttp_transport import connect_cause, proxy_for
from gateway.http.client.connect_errors import NO_TLS, is_untrusted, tls_reason
from gateway.http.client.tls import client_context
from gateway.wire.anthropic import messages as anthropic

_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 16 * 1024 * 1024


class Finding(NamedTuple):
    """The result for one upstream, in one line."""

    upstream: str
    good: bool
    message: str

    def __str__(self) -> str:
        return f"{join('upstreams', self.upstream)}: {self.message}"


class _Entry(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    data: list[_Entry]


class _WrongError(Exception):
    """The upstream cannot be used as configured; the message names the setting."""


async def ask_all(config: Config) -> list[Finding]:
    """Ask all upstreams at the same time, for at most 5 seconds; findings in the config's order."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        return list(await asyncio.gather(*(_ask(session, config, upstream) for upstream in config.upstreams.values())))


async def _ask(session: aiohttp.ClientSession, config: Config, upstream: UpstreamConfig) -> Finding:
    try:
        status, body = await _get(session, upstream)
        listed = _models(upstream, status, body)
        missing = list(_missing_models(config, upstream, listed))
    except _WrongError as error:
        return Finding(upstream.name, False, str(error))
    if missing:
        return Finding(upstream.name, False, "; ".join(missing))
    return Finding(upstream.name, True, f"ok, {len(listed)} model{'' if len(listed) == 1 else 's'}")


async def _get(session: aiohttp.ClientSession, upstream: UpstreamConfig) -> tuple[int, bytes]:
    url, hop = URL(f"{upstream.base_url}/models", encoded=True), first_hop(upstream)
    try:
        async with session.get(
            url,
            headers=[*upstream_headers(upstream), *(anthropic.HEADERS if upstream.kind == "anthropic" else ())],
            allow_redirects=False,
            proxy=hop if hop != upstream.base_url else None,
            ssl=client_context(upstream.base_url, upstream.ca_file) or True,
        ) as answer:
            body = bytearray()
            async for piece in answer.content.iter_chunked(65536):
                body += piece
                if len(body) > _MAX_BYTES:
                    raise _WrongError(f"answered with more than {_MAX_BYTES} bytes to GET {url.path}")
            return answer.status, bytes(body)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _WrongError(_unreachable(error, url, upstream)) from None


def _unreachable(error: Exception, url: URL, upstream: UpstreamConfig) -> str:
    """Why no answer came, and what to check."""
    proxy, variable = proxy_for(upstream.base_url), f"{url.scheme.upper()}_PROXY"
    if proxy is None:
        return _without_proxy(error, url, upstream)
    if upstream.transport != "aiohttp":
        return f"{_without_proxy(error, url, upstream)}; {variable} is set, and only transport: aiohttp uses it"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy of {variable} refused the way to {url.host} with status {error.status}"
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientConnectorDNSError):
        hop = URL(proxy)
        return f"cannot connect to the proxy {hop.host}:{hop.port} ({_reason(error)}); check {variable}"
    return f"{_without_proxy(error, url, upstream)}; asked through the proxy of {variable}"


def _without_proxy(error: Exception, url: URL, upstream: UpstreamConfig) -> str:
    where = f"{url.host}:{url.port}"
    match error:
        case TimeoutError():
            return f"no answer from {where} within {_TIMEOUT_S:g} s; check the address in base_url"
        case aiohttp.ClientConnectorDNSError():
            return f"no such host: {url.host}; check base_url"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return _tls(connect_cause(error), where, upstream)
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {where} ({_reason(error)}); check base_url"
        case aiohttp.ServerDisconnectedError() | OSError():
            return f"{where} closed the connection without an answer; does it speak https instead of http?"
        case _:
            return f"{where} did not answer in well-formed HTTP; check the address in base_url"


def _tls(cause: OSError | None, where: str, upstream: UpstreamConfig) -> str:
    if not isinstance(cause, ssl.SSLError):
        return f"the TLS handshake with {where} failed"
    if tls_reason(cause) == NO_TLS:
        return f"the TLS handshake with {where} failed; does it speak http instead of https?"
    said = f"the TLS handshake with {where} failed: {tls_reason(cause)}"
    if is_untrusted(cause):
        other = "; ca_file does not have its CA" if upstream.ca_file else "; name its CA in ca_file"
        return said + other
    wrong_host = isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code in (62, 64)
    return f"{said}; check the host in base_url" if wrong_host else said


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return os.strerror(error.os_error.errno) if error.os_error.errno else "refused"


def _models(upstream: UpstreamConfig, status: int, body: bytes) -> list[str]:
    """The names in a list of models in OpenAI's format."""
    if status in (401, 403):
        if upstream.api_key is None:
            raise _WrongError(f"requires a key (status {status}); set api_key")
        raise _WrongError(f"rejected the key (status {status}); check api_key")
    if 300 <= status < 400:
        raise _WrongError(f"redirects elsewhere (status {status}); put the address it leads to into base_url")
    if status == 200:
        try:
            return [entry.id for entry in msgspec.json.decode(body, type=_Listing).data]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    elif status not in (400, 404, 405, 501):
        raise _WrongError(f"answered GET {urlsplit(upstream.base_url).path}/models with status {status}")
    path = urlsplit(upstream.base_url).path
    advice = "check the path in base_url" if path.endswith("/v1") else "base_url probably lacks /v1 at its end"
    raise _WrongError(f"no list of models in OpenAI's format at {path}/models (status {status}); {advice}")


def _missing_models(config: Config, upstream: UpstreamConfig, listed: Iterable[str]) -> Iterable[str]:
    names = set(listed)
    for public, model in config.models.items():
        for i, candidate in enumerate(model.candidates):
            if candidate.upstream == upstream.name and candidate.model not in names:
                field = f"{join('models', public)}.candidates[{i}].model"
                hint = did_you_mean(candidate.model, sorted(names))
                yield f"does not list {quoted(candidate.model)} ({field}){hint}"
