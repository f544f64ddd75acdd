"""The client of a running gateway's admin port."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec

from gateway.cli.top.samples import scraped
from gateway.cli.top.view_model import METRICS, AdminAnswers, UpstreamView, UsedRow
from gateway.config.environment import Expander, TooLargeError
from gateway.config.files import UnreadableError, environment, read_text
from gateway.config.reader import Reader
from gateway.config.yaml_loader import BrokenYamlError, parse

DEFAULT: Final = "http://127.0.0.1:9464"
_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class UnknownError(Exception):
    """The config does not give the address; the message says why, in one line."""


class AdminAddress(NamedTuple):
    """Where an admin port is, and a key for it if it may ask for one."""

    url: str
    key: str | None = None

    def __str__(self) -> str:
        return self.url


def given_address(url: str, environ: Mapping[str, str]) -> AdminAddress:
    """The address that a command was given, with the key from `SLUICE_ADMIN_KEY`."""
    return AdminAddress(url, environ.get("SLUICE_ADMIN_KEY"))


def admin_address(path: Path, environ: Mapping[str, str], *, named: bool) -> AdminAddress:
    """The address of the admin port in this config; the default if there is no file and none was `named`.

    Only `admin` is read, because variables that the rest of the config needs may be unset here.
    """
    if not named and not path.exists():
        return AdminAddress(DEFAULT)
    try:
        document, _ = parse(read_text(path))
        expander = Expander(environment(path.parent, environ))
        section = expander.expand(document.get("admin") if isinstance(document, dict) else None)
    except (UnreadableError, BrokenYamlError, TooLargeError) as error:
        raise UnknownError(f"{path}: {error}") from None
    reader = Reader()
    admin = reader.config({"admin": section}).admin
    problems = [*expander.problems, *(item for item in reader.problems if item.path.startswith("admin"))]
    if problems:
        raise UnknownError(str(problems[0]))
    if admin.port == 0:
        raise UnknownError("admin.port: 0 takes a free port, which the config does not know; name it with --admin")
    host = _LOOPBACK_OF.get(admin.host, admin.host)
    url = f"http://[{host}]:{admin.port}" if ":" in host else f"http://{host}:{admin.port}"
    return AdminAddress(url, admin.keys[0].reveal() if admin.keys else None)


_TIMEOUT_S: Final = 5.0
_METRICS: Final = f"/metrics?{urlencode([('name[]', name) for name in METRICS])}"


class AwayError(Exception):
    """The gateway does not answer, or another server does; the message says so in one line."""


class AdminPort:
    """The admin port at an address, as an async context manager."""

    def __init__(self, address: AdminAddress) -> None:
        self._url = address.url.rstrip("/")
        self._headers = {} if address.key is None else {"Authorization": f"Bearer {address.key}"}

    async def __aenter__(self) -> "AdminPort":
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def read(self) -> AdminAnswers:
        """Everything that the screen shows. AwayError if the gateway does not answer."""
        (_, metrics), (status, ready), (_, upstreams), (_, usage) = await asyncio.gather(
            self.get(_METRICS),
            self.get("/readyz"),
            self.get("/admin/upstreams"),
            self.get("/admin/usage?days=1&by=day,key,model"),
        )
        try:
            rows = msgspec.json.decode(usage, type=list[UsedRow] | dict[str, str])
            return AdminAnswers(
                scraped(metrics.decode()),
                "ready" if status == 200 else ready.decode().strip(),
                msgspec.json.decode(upstreams, type=dict[str, UpstreamView]),
                rows if isinstance(rows, list) else [],
                rows.get("error", "") if isinstance(rows, dict) else "",
            )
        except (ValueError, msgspec.MsgspecError):
            raise AwayError(f"{self._url} is not a gateway's admin port") from None

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET. AwayError if the gateway does not answer."""
        try:
            async with self._session.get(f"{self._url}{path}", allow_redirects=False) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise AwayError(f"{self._url} does not answer: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    match error:
        case TimeoutError():
            return f"nothing within {_TIMEOUT_S:g} s"
        case aiohttp.ClientConnectorError() if error.os_error.errno:
            return os.strerror(error.os_error.errno).lower()
        case _:
            return "no well-formed HTTP"
