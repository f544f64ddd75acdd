"""A client of the Files and Batches API."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import aiohttp
import msgspec
from msgspec import Struct

from gateway import __version__
from gateway.core.units import Secret

_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)


class BatchCommandError(Exception):
    """The command cannot go on; the message says why in one line."""


class BatchView(Struct):
    """What the command shows of a batch."""

    id: str
    status: str
    endpoint: str = ""
    created_at: int = 0
    expires_at: int | None = None
    in_progress_at: int | None = None
    request_counts: dict[str, int] = {}
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    cost_usd: str | None = None
    paused: str = ""

    @property
    def ended(self) -> bool:
        """Whether it never changes again."""
        return self.status in ("completed", "failed", "expired", "cancelled")

    @property
    def done(self) -> int:
        """Lines that have ended."""
        return self.request_counts.get("completed", 0) + self.request_counts.get("failed", 0)


class BatchClient:
    """The API at a base URL; used in an `async with`. Its methods raise BatchCommandError."""

    def __init__(self, url: str, key: Secret | None) -> None:
        self._url = url.rstrip("/")
        headers = {"user-agent": f"sluice-batch/{__version__}"}
        if key is not None:
            headers["authorization"] = f"Bearer {key.reveal()}"
        self._headers = headers

    async def __aenter__(self) -> "BatchClient":
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=_TIMEOUT, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def upload(self, path: Path) -> str:
        """Upload an input file; returns its id."""
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        with path.open("rb") as file:
            form.add_field("file", file, filename=path.name)
            return str((await self._json("POST", "/files", data=form))["id"])

    async def create(self, file: str, endpoint: str, window: str) -> BatchView:
        """Create a batch."""
        body = {"input_file_id": file, "endpoint": endpoint, "completion_window": window}
        return _view(await self._json("POST", "/batches", json=body))

    async def batch(self, id: str) -> BatchView:
        """A batch as it is now."""
        return _view(await self._json("GET", f"/batches/{id}"))

    async def latest(self) -> list[BatchView]:
        """The latest batches, the newest first."""
        return [_view(each) for each in (await self._json("GET", "/batches?limit=20"))["data"]]

    async def cancel(self, id: str) -> BatchView:
        """Cancel a batch."""
        return _view(await self._json("POST", f"/batches/{id}/cancel"))

    async def download(self, file: str, out: BinaryIO) -> None:
        """Write the content of a file."""
        try:
            async with self._session.get(f"{self._url}/files/{file}/content") as answer:
                await _check(answer)
                async for piece in answer.content.iter_chunked(256 * 1024):
                    out.write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._away(error) from None

    async def _json(self, method: str, path: str, **body: Any) -> Any:
        try:
            async with self._session.request(method, self._url + path, **body) as answer:
                await _check(answer)
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise self._away(error) from None

    def _away(self, error: Exception) -> BatchCommandError:
        return BatchCommandError(f"{self._url} does not answer as a gateway: {str(error) or type(error).__name__}")


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 400:
        return
    text = await answer.text()
    try:
        message = msgspec.json.decode(text)["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        message = f"status {answer.status}"
    raise BatchCommandError(" ".join(str(message).split()))


def _view(shown: Mapping[str, Any]) -> BatchView:
    return msgspec.convert(shown, BatchView)


async def pause(seconds: float) -> None:
    """Wait between two looks at a batch."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        pass
