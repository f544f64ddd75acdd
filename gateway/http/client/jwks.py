"""Fetches a JSON Web Key Set: verified TLS, the environment's proxy, no redirects, bounded in size and time."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from gateway.auth.jwks_store import KeysUnavailableError
from gateway.http.client.aiohttp_transport import connect_cause, proxy_for
from gateway.http.client.connect_errors import connect_reason, tls_reason
from gateway.http.client.tls import client_context

TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 1024 * 1024


async def fetch(url: str, ca_file: str | None) -> bytes:
    """The text at this address, or KeysUnavailableError."""
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            ) as session,
            session.get(
                URL(url, encoded=True),
                headers={"accept": "application/jwk-set+json, application/json"},
                allow_redirects=False,
                proxy=proxy_for(url),
                ssl=client_context(url, ca_file) or True,
            ) as answer,
        ):
            if answer.status != 200:
                raise KeysUnavailableError(f"jwks_url answers with status {answer.status}")
            text = await answer.content.read(_MAX_BYTES + 1)
            while len(text) <= _MAX_BYTES and (more := await answer.content.read(_MAX_BYTES)):
                text += more
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise KeysUnavailableError(_reason(error)) from None
    if len(text) > _MAX_BYTES:
        raise KeysUnavailableError(f"jwks_url answers with more than {_MAX_BYTES} bytes")
    return text


async def read_file(path: str) -> bytes:
    """The text of this file, or KeysUnavailableError."""
    try:
        return await asyncio.to_thread(Path(path).read_bytes)
    except OSError as error:
        raise KeysUnavailableError(f"jwks_file cannot be read: {error.strerror or error}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"jwks_url does not answer within {TIMEOUT_S:g} s"
    cause = connect_cause(error) if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, ssl.SSLError):
        return f"the TLS handshake with jwks_url failed: {tls_reason(cause)}"
    if cause is not None:
        return f"jwks_url cannot be reached: {connect_reason(cause)}"
    return "jwks_url does not answer in well-formed HTTP"
