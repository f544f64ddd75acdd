"""Asks the admin port of a running gateway."""

import asyncio
import os
from typing import Final

import aiohttp
import msgspec

from gateway.top.picture import Answers, Seen, Used
from gateway.top.series import scraped

_PATIENCE_S: Final = 5.0


class AwayError(Exception):
    """The gateway does not answer, or something else does; the message says so in one line."""


class AdminPort:
    """The admin port at an address such as `http://127.0.0.1:9464`; use it in an `async with`."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def __aenter__(self) -> "AdminPort":
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_PATIENCE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def read(self) -> Answers:
        """Everything that the screen shows. AwayError where it cannot be had."""
        try:
            (_, metrics), (status, ready), (_, upstreams), (_, usage) = await asyncio.gather(
                self._get("/metrics"),
                self._get("/readyz"),
                self._get("/admin/upstreams"),
                self._get("/admin/usage?days=1"),
            )
        except (aiohttp.ClientError, OSError) as error:
            raise AwayError(f"{self._url} does not answer: {_reason(error)}") from None
        try:
            rows = msgspec.json.decode(usage, type=list[Used] | dict[str, str])
            return Answers(
                scraped(metrics.decode()),
                "ready" if status == 200 else ready.decode().strip(),
                msgspec.json.decode(upstreams, type=dict[str, Seen]),
                rows if isinstance(rows, list) else [],
                rows.get("error", "") if isinstance(rows, dict) else "",
            )
        except (ValueError, msgspec.MsgspecError):
            raise AwayError(f"{self._url} is not a gateway's admin port") from None

    async def _get(self, path: str) -> tuple[int, bytes]:
        async with self._session.get(f"{self._url}{path}", allow_redirects=False) as answer:
            return answer.status, await answer.read()


def _reason(error: Exception) -> str:
    match error:
        case TimeoutError():
            return f"nothing within {_PATIENCE_S:g} s"
        case aiohttp.ClientConnectorError() if error.os_error.errno:
            return os.strerror(error.os_error.errno).lower()
        case _:
            return "no well-formed HTTP"
