"""Polls the `/metrics` page of engines for their load, about once a second. No call waits for it."""

import asyncio
import math
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from yarl import URL

from gateway.admission.engine_admission import EngineLoad
from gateway.core.clock import Clock
from gateway.http.client.resolver import AiohttpResolver, Resolver
from gateway.http.client.tls import client_context

POLL_INTERVAL_S: Final = 1.0
STALE_S: Final = 3.0
"""Seconds after which a reading is ignored."""
_TIMEOUT_S: Final = 1.0
_MAX_PAGE_BYTES: Final = 4 * 1024 * 1024

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
_PREEMPTED: Final = re.compile(rb"^vllm:num_preemptions(?:_total)?(?:\{[^\n]*\})? ([0-9.eE+-]{1,32})", re.M)
_CACHE_INFO: Final = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\}", re.M)
_INFO_LABEL: Final = re.compile(rb'(num_gpu_blocks|block_size)="([0-9]{1,9})"')
_SGLANG_TOKENS: Final = re.compile(rb"^sglang:max_total_num_tokens(?:\{[^\n]*\})? ([0-9.eE+-]{1,32})", re.M)
_Patterns = tuple[tuple[re.Pattern[bytes], ...], ...]


class MetricsSource(NamedTuple):
    """An engine to poll: its kind, its base URL, the headers to send and its `ca_file`."""

    kind: str
    base_url: str
    headers: Sequence[tuple[str, str]]
    ca_file: str | None = None


def _compile(kind: str) -> _Patterns:
    return tuple(
        tuple(re.compile(rb"^%b(?:\{[^\n]*\})? ([0-9.eE+-]{1,32})" % name.encode(), re.M) for name in names)
        for names in _NAMES[kind]
    )


def read(kind: str, page: bytes) -> EngineLoad | None:
    """The load in a page of Prometheus text; None if running or waiting calls are missing.

    An engine with several ranks has one series per rank: calls are summed, the fullest cache counts.
    """
    running, waiting, kv = (_values(page, patterns) for patterns in _PATTERNS[kind])
    if not running or not waiting or not math.isfinite(sum(running) + sum(waiting)):
        return None
    capacity, block = _cache(kind, page)
    preempted = sum(_values(page, (_PREEMPTED,))) if kind == "vllm" else 0.0
    return EngineLoad(
        int(sum(running)),
        int(sum(waiting)),
        max(kv) if kv else None,
        int(preempted) if math.isfinite(preempted) else 0,
        capacity,
        block,
    )


def _cache(kind: str, page: bytes) -> tuple[int | None, int | None]:
    """The tokens of the KV cache over all ranks, and of one block; None where the page does not tell."""
    if kind == "sglang":
        sizes = _values(page, (_SGLANG_TOKENS,))
        total = sum(sizes)
        return (int(total), 1) if 0 < total < math.inf else (None, None)
    ranks = [dict(_INFO_LABEL.findall(labels)) for labels in _CACHE_INFO.findall(page)] if kind == "vllm" else []
    known = [(int(rank[b"num_gpu_blocks"]), int(rank[b"block_size"])) for rank in ranks if len(rank) == 2]
    capacity = sum(blocks * size for blocks, size in known)
    return (capacity, known[0][1]) if capacity else (None, None)


def _values(page: bytes, patterns: Iterable[re.Pattern[bytes]]) -> list[float]:
    for pattern in patterns:
        numbers = pattern.findall(page)
        if numbers:
            try:
                return [float(number) for number in numbers]
            except ValueError:
                return []
    return []


_PATTERNS: Final[Mapping[str, _Patterns]] = {kind: _compile(kind) for kind in _NAMES}


class EngineMetricsPoller:
    """The current load of these engines, with one polling task each. Must be created inside the event loop.

    The load of an engine that does not answer is unknown; the gateway still counts its own calls there.
    """

    def __init__(
        self,
        sources: Mapping[str, MetricsSource],
        clock: Clock,
        resolver: Resolver | None = None,
        on_reading: Callable[[str, EngineLoad], None] = lambda upstream, load: None,
    ) -> None:
        """`on_reading(upstream, load)` is called with every reading."""
        self.sources = sources
        self._on_reading = on_reading
        self._clock = clock
        self._readings: dict[str, tuple[float, EngineLoad]] = {}
        self._session = (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=AiohttpResolver(resolver or Resolver())),
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
            if sources
            else None
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._poll(name, source)) for name, source in sources.items()]

    def of(self, upstream: str, now: float) -> EngineLoad | None:
        """The engine's load, read at most STALE_S ago, or None."""
        reading = self._readings.get(upstream)
        return reading[1] if reading is not None and now - reading[0] <= STALE_S else None

    def view(self, upstream: str) -> dict[str, object] | None:
        """The engine's load for the admin port; None if it is unknown or not polled."""
        load = self.of(upstream, self._clock())
        return None if load is None else {"running": load.running, "waiting": load.waiting, "kv": load.kv}

    async def close(self) -> None:
        """Stop polling."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _poll(self, name: str, source: MetricsSource) -> None:
        url, tls = metrics_url(source.base_url), client_context(source.base_url, source.ca_file)
        while True:
            page = await self._fetch(url, source.headers, tls)
            load = read(source.kind, page) if page is not None else None
            if load is not None:
                self._readings[name] = self._clock(), load
                self._on_reading(name, load)
            await asyncio.sleep(POLL_INTERVAL_S)  # noqa: TID251 - the pace of a background poll

    async def _fetch(self, url: URL, headers: Sequence[tuple[str, str]], tls: ssl.SSLContext | None) -> bytes | None:
        if self._session is None:
            return None
        try:
            async with self._session.get(url, headers=list(headers), allow_redirects=False, ssl=tls or True) as answer:
                if answer.status != 200:
                    return None
                page = b""
                async for piece in answer.content.iter_any():
                    page += piece
                    if len(page) > _MAX_PAGE_BYTES:
                        return None
                return page
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None


def metrics_url(base_url: str) -> URL:
    """The URL of `/metrics` next to an engine's `/v1`."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return URL(urlunsplit((parts.scheme, parts.netloc, f"{path}/metrics", "", "")), encoded=True)
