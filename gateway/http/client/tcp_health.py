"""Which upstreams accept connections: learned from the calls themselves, re-checked while one does not.

An upstream is asked nothing, only connected to: once at start, and every `retry_s` seconds after a call could
not reach it. Readiness and `/admin/upstreams` read this; calls are never refused because of it.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.telemetry.logging import logger


class TcpHealthChecker:
    """Knows for every upstream: True, False, or None while not yet known. Must be made inside the loop."""

    def __init__(self, base_urls: Mapping[str, str], connect_s: float = 2.0, retry_s: float = 1.0) -> None:
        self._addresses = {name: _address(url) for name, url in base_urls.items()}
        self._connect_s = connect_s
        self._retry_s = retry_s
        self._state: dict[str, bool | None] = dict.fromkeys(base_urls)
        self._lost = asyncio.Event()
        self._lost.set()  # nothing is known yet
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def of(self, upstream: str) -> bool | None:
        """The last that was seen of it."""
        return self._state[upstream]

    def any(self) -> bool:
        """Whether at least one upstream can be used."""
        return any(self._state.values())

    def note(self, upstream: str, reachable: bool) -> None:
        """A call has just found out."""
        if self._state[upstream] is not reachable:
            self._change(upstream, reachable)

    async def close(self) -> None:
        """Stop checking."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await self._lost.wait()
            unknown = [name for name, reachable in self._state.items() if not reachable]
            await asyncio.gather(*map(self._check, unknown))
            if all(self._state.values()):
                self._lost.clear()
            else:
                await asyncio.sleep(self._retry_s)  # noqa: TID251 - the pace of a background check

    async def _check(self, upstream: str) -> None:
        host, port = self._addresses[upstream]
        try:
            async with asyncio.timeout(self._connect_s):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
        except (OSError, UnicodeError):  # refused, unknown host, timed out; no host name at all
            self.note(upstream, reachable=False)
        else:
            self.note(upstream, reachable=True)

    def _change(self, upstream: str, reachable: bool) -> None:
        before, self._state[upstream] = self._state[upstream], reachable
        if not reachable:
            self._lost.set()
            logger.warning("upstream cannot be reached", extra={"upstream": upstream})
        elif before is False:
            logger.info("upstream can be reached again", extra={"upstream": upstream})


def _address(base_url: str) -> tuple[str, int]:
    parts = urlsplit(base_url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
