"""What an engine offers beyond OpenAI's API: found out with a call that cannot generate anything."""

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.core.call import BATCH_CHAT
from gateway.core.clock import Clock
from gateway.core.errors import UpstreamFailure
from gateway.http.client.upstream import UpstreamClient
from gateway.telemetry.logging import logger

_PATIENCE_S: Final = 5.0
_AGAIN_S: Final = 60.0
"""Seconds after which an engine that could not be asked, or offered nothing, is asked again."""
_STILL_S: Final = 300.0
"""Seconds for which an offer stands: another engine may have taken the place of the one that was asked."""


class BatchEndpointProbe:
    """Which upstreams take several conversations in one call (`POST /v1/chat/completions/batch`).

    Only those are asked that are named here (vLLM's), the first time that somebody wants to know. The request
    has no conversation in it: an engine that has the route refuses the request, others do not know the path.
    """

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamClient],
        clock: Clock,
        before: "BatchEndpointProbe | None" = None,
    ) -> None:
        """What `before` has found out of the same servers is known from the start."""
        self._upstreams = upstreams
        self._clock = clock
        self._offered = {} if before is None else before._of(upstreams)
        self._ask_again_at: dict[str, float] = {
            name: before._ask_again_at[name] if before is not None and self._offered.get(name) else 0.0
            for name in upstreams
        }
        self._asking: set[asyncio.Task[None]] = set()

    def batch_chat(self, upstream: str) -> bool:
        """Whether it does, as far as is known now; asks in the background now and then."""
        offered = self._offered.get(upstream, False)
        if upstream in self._upstreams and (now := self._clock()) >= self._ask_again_at[upstream]:
            self._ask_again_at[upstream] = now + _AGAIN_S
            task = asyncio.create_task(self._ask(self._upstreams[upstream]))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return offered

    def _of(self, upstreams: Mapping[str, UpstreamClient]) -> dict[str, bool]:
        """Of those that it knows by the same pool of connections."""
        return {
            name: self._offered.get(name, False)
            for name, one in upstreams.items()
            if name in self._upstreams and self._upstreams[name].transport is one.transport
        }

    async def _ask(self, upstream: UpstreamClient) -> None:
        try:
            status = await upstream.probe(BATCH_CHAT, b'{"messages":[]}', self._clock() + _PATIENCE_S)
        except UpstreamFailure:
            return
        before, offered = self._offered.get(upstream.name, False), status in (400, 422)
        self._offered[upstream.name] = offered
        if offered:
            self._ask_again_at[upstream.name] = self._clock() + _STILL_S
        if offered and not before:
            logger.info("short chats may share a call", extra={"upstream": upstream.name})

    async def close(self) -> None:
        """Ask nobody any more."""
        for task in tuple(self._asking):
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)
