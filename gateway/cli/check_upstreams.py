"""`sluice check --connect`: asks every upstream for its models, and tells which setting to look at."""

import asyncio
import os
import ssl
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from gateway import __version__
from gateway.config.model import Config, UpstreamConfig
from gateway.config.problems import did_you_mean, join, quoted
from gateway.http.client.upstream import fixed_headers

_PATIENCE_S: Final = 5.0
_LONGEST: Final = 16 * 1024 * 1024


class Finding(NamedTuple):
    """What one upstream answered, in one line."""

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
    """The upstream cannot be used as configured; the message says which setting to look at."""


async def ask_all(config: Config) -> list[Finding]:
    """Ask every upstream at once, each for 5 seconds; findings in the config's order."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=_PATIENCE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    ) as session:
        return list(await asyncio.gather(*(_ask(session, config, one) for one in config.upstreams.values())))


async def _ask(session: aiohttp.ClientSession, config: Config, upstream: UpstreamConfig) -> Finding:
    try:
        status, body = await _get(session, upstream)
        listed = _models(upstream, status, body)
        missing = list(_unlisted(config, upstream, listed))
    except _WrongError as error:
        return Finding(upstream.name, False, str(error))
    if missing:
        return Finding(upstream.name, False, "; ".join(missing))
    return Finding(upstream.name, True, f"ok, {len(listed)} model{'' if len(listed) == 1 else 's'}")


async def _get(session: aiohttp.ClientSession, upstream: UpstreamConfig) -> tuple[int, bytes]:
    key = upstream.api_key.reveal() if upstream.api_key is not None else None
    extra = {name: value.reveal() for name, value in upstream.headers.items()}
    headers = fixed_headers(key, extra, f"sluice/{__version__}")
    url = URL(f"{upstream.base_url}/models", encoded=True)
    try:
        async with session.get(url, headers=list(headers), allow_redirects=False) as answer:
            body = bytearray()
            async for piece in answer.content.iter_chunked(65536):
                body += piece
                if len(body) > _LONGEST:
                    raise _WrongError(f"answered with more than {_LONGEST} bytes to GET {url.path}")
            return answer.status, bytes(body)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _WrongError(_unreachable(error, url)) from None


def _unreachable(error: Exception, url: URL) -> str:
    """Why no answer came, and what in `base_url` to look at."""
    where = f"{url.host}:{url.port}"
    match error:
        case TimeoutError():
            return f"no answer from {where} within {_PATIENCE_S:g} s; check the address in base_url"
        case aiohttp.ClientConnectorDNSError():
            return f"no such host: {url.host}; check base_url"
        case aiohttp.ClientConnectorCertificateError():
            return (
                f"the certificate of {where} is not trusted or not for this host; check the host in base_url"
            )
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return f"the TLS handshake with {where} failed; does it speak http instead of https?"
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {where} ({_reason(error)}); check base_url"
        case aiohttp.ServerDisconnectedError() | OSError():
            return f"{where} closed the connection without an answer; does it speak https instead of http?"
        case _:
            return f"{where} did not answer in well-formed HTTP; check the address in base_url"


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return os.strerror(error.os_error.errno) if error.os_error.errno else "refused"


def _models(upstream: UpstreamConfig, status: int, body: bytes) -> list[str]:
    """The names in an OpenAI-shaped list of models."""
    if status in (401, 403):
        if upstream.api_key is None:
            raise _WrongError(f"asks for a key (status {status}); set api_key")
        raise _WrongError(f"refused the key (status {status}); check api_key")
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
    advice = (
        "check the path in base_url" if path.endswith("/v1") else "base_url probably lacks /v1 at its end"
    )
    raise _WrongError(f"no OpenAI-shaped list of models at {path}/models (status {status}); {advice}")


def _unlisted(config: Config, upstream: UpstreamConfig, listed: Iterable[str]) -> Iterable[str]:
    names = set(listed)
    for public, model in config.models.items():
        for i, candidate in enumerate(model.candidates):
            if candidate.upstream == upstream.name and candidate.model not in names:
                place = f"{join('models', public)}.candidates[{i}].model"
                hint = did_you_mean(candidate.model, sorted(names))
                yield f"does not list {quoted(candidate.model)} ({place}){hint}"
