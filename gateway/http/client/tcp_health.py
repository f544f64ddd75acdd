"""TCP health checks: which upstreams accept connections.

A check only connects and sends nothing: once at start, and every `retry_s` seconds after a call could not
connect. Readiness and `/admin/upstreams` read the result; no call is rejected because of it.
"""

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from gateway.http.client.connect_errors import is_local
from gateway.http.client.resolver import Resolver
from gateway.telemetry.logging import logger


class TcpHealthChecker:
    """The reachability of every upstream: True, False, or None while unknown. Must be created in the loop."""

    def __init__(
        self,
        base_urls: Mapping[str, str],
        resolver: Resolver | None = None,
        connect_s: float = 2.0,
        retry_s: float = 1.0,
    ) -> None:
        self._resolver = resolver or Resolver()
        self._addresses = {name: _address(url) for name, url in base_urls.items()}
        self._connect_s = connect_s
        self._retry_s = retry_s
        self._state: dict[str, bool | None] = dict.fromkeys(base_urls)
        self._lost = {name: asyncio.Event() for name in base_urls}
        # One task each: an upstream that takes its time to fail must not hold up the news of the others.
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch(name)) for name in base_urls]

    def of(self, upstream: str) -> bool | None:
        """Its last known state."""
        return self._state[upstream]

    def any(self) -> bool:
        """Whether at least one upstream can be used."""
        return any(self._state.values())

    def note(self, upstream: str, reachable: bool) -> None:
        """Record what a call has just found."""
        if self._state[upstream] is not reachable:
            self._change(upstream, reachable)

    async def close(self) -> None:
        """Stop checking."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, upstream: str) -> None:
        lost = self._lost[upstream]
        while True:
            if not self._state[upstream]:
                await self._check(upstream)
            if self._state[upstream]:
                lost.clear()
                await lost.wait()
            else:
                await asyncio.sleep(self._retry_s)  # noqa: TID251 - the pace of a background check

    async def _check(self, upstream: str) -> None:
        host, port = self._addresses[upstream]
        try:
            async with asyncio.timeout(self._connect_s):
                sock = await start_connection(
                    await self._resolver.addresses(host, port), happy_eyeballs_delay=0.25, interleave=1
                )
            sock.close()
        except (OSError, UnicodeError) as error:  # refused, unknown, timed out; UnicodeError: not a host name
            if not is_local(error):
                self.note(upstream, reachable=False)
        else:
            self.note(upstream, reachable=True)

    def _change(self, upstream: str, reachable: bool) -> None:
        before, self._state[upstream] = self._state[upstream], reachable
        if not reachable:
            self._lost[upstream].set()
            logger.warning("upstream cannot be reached", extra={"upstream": upstream})
        elif before is False:
            logger.info("upstream can be reached again", extra={"upstream": upstream})


def _address(base_url: str) -> tuple[str, int]:
    parts = urlsplit(base_url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
