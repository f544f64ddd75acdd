"""What engines say of their own load: their metrics, read about once a second and never waited for."""

import asyncio
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from yarl import URL

from gateway.core.clock import Clock
from gateway.routing.load import EngineLoad

EVERY_S: Final = 1.0
STALE_S: Final = 3.0
"""What is older is no news any more."""
_PATIENCE_S: Final = 1.0
_LONGEST: Final = 4 * 1024 * 1024

_NAMES: Final = {
    "vllm": (
        ("vllm:num_requests_running",),
        ("vllm:num_requests_waiting",),
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ),
    "sglang": (("sglang:num_running_reqs",), ("sglang:num_queue_reqs",), ("sglang:token_usage",)),
    "llamacpp": (
        ("llamacpp:requests_processing",),
        ("llamacpp:requests_deferred",),
        ("llamacpp:kv_cache_usage_ratio",),
    ),
}
KINDS: Final = tuple(_NAMES)
_Forms = tuple[tuple[re.Pattern[bytes], ...], ...]


class MetricsSource(NamedTuple):
    """Where an engine's metrics are, and what is sent along to get them."""

    kind: str
    base_url: str
    headers: Sequence[tuple[str, str]]


def _forms(kind: str) -> _Forms:
    return tuple(
        tuple(re.compile(rb"^%b(?:\{[^\n]*\})? ([0-9.eE+-]{1,32})" % name.encode(), re.M) for name in names)
        for names in _NAMES[kind]
    )


def read(kind: str, page: bytes) -> EngineLoad | None:
    """The load in a page of Prometheus text; None where it does not tell both numbers.

    An engine of several ranks has a series for each: their calls add up, the fullest cache counts.
    """
    running, waiting, kv = (_values(page, names) for names in _FORMS[kind])
    if not running or not waiting or not math.isfinite(sum(running) + sum(waiting)):
        return None
    return EngineLoad(int(sum(running)), int(sum(waiting)), max(kv) if kv else None)


def _values(page: bytes, names: Iterable[re.Pattern[bytes]]) -> list[float]:
    for form in names:
        found = form.findall(page)
        if found:
            try:
                return [float(one) for one in found]
            except ValueError:
                return []
    return []


_FORMS: Final[Mapping[str, _Forms]] = {kind: _forms(kind) for kind in _NAMES}


class EngineMetricsPoller:
    """Knows the load of these engines. Must be made inside the loop; has one task for each of them.

    An engine that does not answer is simply not known about: the gateway still knows what it has sent there.
    """

    def __init__(self, sources: Mapping[str, MetricsSource], clock: Clock) -> None:
        self.sources = sources
        self._clock = clock
        self._seen: dict[str, tuple[float, EngineLoad]] = {}
        self._session = (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_PATIENCE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
            if sources
            else None
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow(name, one)) for name, one in sources.items()]

    def of(self, upstream: str, now: float) -> EngineLoad | None:
        """What it said at most STALE_S ago."""
        seen = self._seen.get(upstream)
        return seen[1] if seen is not None and now - seen[0] <= STALE_S else None

    def view(self, upstream: str) -> dict[str, object] | None:
        """The same for the admin port; None where nothing is known, or nobody is asked."""
        engine = self.of(upstream, self._clock())
        return None if engine is None else engine._asdict()

    async def close(self) -> None:
        """Ask nobody any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _follow(self, name: str, source: MetricsSource) -> None:
        url = metrics_url(source.base_url)
        while True:
            page = await self._page(url, source.headers)
            engine = read(source.kind, page) if page is not None else None
            if engine is not None:
                self._seen[name] = self._clock(), engine
            await asyncio.sleep(EVERY_S)  # noqa: TID251 - the pace of a background look

    async def _page(self, url: URL, headers: Sequence[tuple[str, str]]) -> bytes | None:
        if self._session is None:
            return None
        try:
            async with self._session.get(url, headers=list(headers), allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                page = b""
                async for piece in answer.content.iter_any():
                    page += piece
                    if len(page) > _LONGEST:
                        return None
                return page
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None


def metrics_url(base_url: str) -> URL:
    """`/metrics` beside the `/v1` of an engine."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return URL(urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", "")), encoded=True)
