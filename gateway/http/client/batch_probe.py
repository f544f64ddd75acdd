"""Which engines have the batch endpoint of chat, found out by a request that cannot generate anything."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiolimiter import AsyncLimiter

from gateway.core.clock import Clock
from gateway.core.errors import UpstreamFailure
from gateway.http.client.upstream import UpstreamClient
from gateway.telemetry.logging import logger
from gateway.wire.openai.chat import BATCH_CHAT

_TIMEOUT_S: Final = 5.0
_PROBE_INTERVAL_S: Final = 60.0
"""At most one probe per upstream in this time."""
_VALID_S: Final = 300.0
"""A positive result is used this long without a new probe; the engine may have been replaced since."""


class BatchEndpointProbe:
    """Which upstreams take several conversations in one call (`POST /v1/chat/completions/batch`).

    Only the given upstreams (vLLM's) are probed, when `batch_chat` is first called for them. The request has
    no conversation in it: an engine with the endpoint rejects the request, others do not know the path.
    """

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamClient],
        clock: Clock,
        before: "BatchEndpointProbe | None" = None,
    ) -> None:
        """Takes over from `before`, of the previous config, the results for unchanged upstreams."""
        self._upstreams = upstreams
        self._clock = clock
        unchanged = set() if before is None else before._same(upstreams)
        self._supported: set[str] = set()
        self._valid_until = dict.fromkeys(upstreams, 0.0)
        self._limiters = {name: AsyncLimiter(1, _PROBE_INTERVAL_S) for name in upstreams}
        if before is not None:
            self._supported = before._supported & unchanged
            for name in self._supported:
                self._valid_until[name] = before._valid_until[name]
                self._limiters[name] = before._limiters[name]
        self._probing: dict[str, asyncio.Task[None]] = {}

    def batch_chat(self, upstream: str) -> bool:
        """Whether it has the endpoint, as far as is known; now and then starts a probe in the background."""
        if (
            upstream in self._upstreams
            and upstream not in self._probing
            and self._clock() >= self._valid_until[upstream]
        ):
            task = asyncio.create_task(self._probe(self._upstreams[upstream]))
            self._probing[upstream] = task
            task.add_done_callback(lambda _: self._probing.pop(upstream, None))
        return upstream in self._supported

    def _same(self, upstreams: Mapping[str, UpstreamClient]) -> set[str]:
        """The names that stand for the same connection pool here and there."""
        return {
            name
            for name, client in upstreams.items()
            if name in self._upstreams and self._upstreams[name].transport is client.transport
        }

    async def _probe(self, upstream: UpstreamClient) -> None:
        async with self._limiters[upstream.name]:  # waits until a minute after the last probe
            deadline = self._clock() + _TIMEOUT_S
            try:
                status = await upstream.probe(BATCH_CHAT, b'{"messages":[]}', deadline)
            except UpstreamFailure:
                return
        if status not in (400, 422):
            self._supported.discard(upstream.name)
            return
        self._valid_until[upstream.name] = self._clock() + _VALID_S
        if upstream.name not in self._supported:
            self._supported.add(upstream.name)
            logger.info("short chats may share a call", extra={"upstream": upstream.name})

    async def close(self) -> None:
        """Cancels the probes."""
        tasks = tuple(self._probing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
