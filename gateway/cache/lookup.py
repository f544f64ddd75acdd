"""One call's view of the cache: its key, the stored answer, and the new answer to store."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from gateway.cache import key as cache_key
from gateway.cache import replay
from gateway.cache.cached_answer import finished, replace_id
from gateway.cache.control import CacheControl
from gateway.cache.fan_out import ReplayedStream
from gateway.cache.key import RequestDigest
from gateway.cache.single_flight import Fetched, StoreAction
from gateway.cache.store import CacheEntry, CacheHit, CacheStore
from gateway.cache.stream_assembly import AnswerAssembler
from gateway.core.call import Call, Handler, Reply, TokenUsage
from gateway.core.clock import Clock
from gateway.core.errors import Rejection
from gateway.usage.call_usage import spent
from gateway.usage.cost import cost

_TOOL_MARKS: Final = (b"tool_calls", b"function_call")


class CachePolicy(NamedTuple):
    """How the answers of one model are cached: the store and the time to live in seconds.

    `serving` identifies the model's candidates; `headers` are the client headers forwarded to them.
    """

    store: CacheStore
    ttl: float
    serving: bytes
    headers: Sequence[str] = ()


class LookupResult(NamedTuple):
    """A stored answer ready to serve: its usage, its age and its remaining time in seconds."""

    reply: Reply
    tokens: TokenUsage
    cost: int | None
    age: float
    expires_in: float


class CacheableRequest(Protocol):
    """One call that may be served from the cache.

    `flight_key` is equal for calls that may share an upstream call. `completed_flights` is the number of
    completed flights at the time of the lookup.
    """

    flight_key: bytes
    control: CacheControl
    hit: LookupResult | None
    completed_flights: int

    @property
    def forwarded(self) -> str:
        """Return why the call goes upstream, as RFC 9211's `fwd` parameter."""

    async def find(self) -> LookupResult | None:
        """Return the stored answer if this call may have it. Raises CacheUnavailable."""

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Implement `single_flight.Fetcher`."""

    def on_events(self, events: bytes) -> None:
        """Implement `single_flight.Fetcher`."""

    def on_complete(self, call: Call) -> StoreAction | None:
        """Implement `single_flight.Fetcher`."""


class GenerationRequest:
    """`CacheableRequest` of a chat or completions call; a streamed answer is stored in its complete form."""

    def __init__(
        self,
        call: Call,
        policy: CachePolicy,
        control: CacheControl,
        digest: RequestDigest,
        scope: bytes,
        fresh_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        self.control = control
        self.hit: LookupResult | None = None
        self.completed_flights = 0
        self._too_old = False
        self._key = cache_key.key(scope, digest.digest)
        self.flight_key = self._key + digest.form + (b"" if control.lookup else b"!")
        self._endpoint = call.request.endpoint
        self._usage = digest.usage
        self._policy = policy
        self._fresh_id = fresh_id
        self._clock = clock
        self._assembler = AnswerAssembler(call.request.endpoint, policy.store.largest) if call.request.stream else None

    @property
    def forwarded(self) -> str:
        """Return why the call goes upstream."""
        return "request" if self._too_old or not self.control.lookup else "miss"

    async def find(self) -> LookupResult | None:
        """Return the stored answer if this call may have it."""
        [hit] = await self._policy.store.get([self._key])
        self._too_old = hit is not None and hit.age > self.control.max_age
        if hit is None or self._too_old or self._needs_allow_sampled(hit.entry.body):
            return None
        reply = self._reply(hit)
        if reply is None:
            return None
        entry = hit.entry
        self.hit = LookupResult(reply, entry.tokens, entry.cost, hit.age, hit.expires_in)
        return self.hit

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Call the upstream."""
        reply = await inner(call)
        if isinstance(reply, Rejection) or reply.stream is not None:
            return Fetched(reply)
        call.response.outcome = "ok"
        return Fetched(reply, self._store_action(call, reply.body))

    def on_events(self, events: bytes) -> None:
        """Collect a part of the stream."""
        if self._assembler is not None:
            self._assembler.feed(events)

    def on_complete(self, call: Call) -> StoreAction | None:
        """Return how to store the complete answer, if it could be assembled."""
        body = self._assembler.answer(call.usage.tokens) if self._assembler is not None else None
        return None if body is None else self._store_action(call, body)

    def _store_action(self, call: Call, body: bytes) -> StoreAction | None:
        """Return None for an answer that must not be stored: modified, from a fallback, too large or cut, or if
        the store is away.
        """
        route = call.routing.route
        if call.modified or call.routing.candidate not in route.candidates:
            return None  # a fallback's answer must not outlive the outage
        if len(body) > self._policy.store.largest or not self._policy.store.up:
            return None
        if not finished(body, tools=self.control.allow_sampled):
            return None
        return partial(self._policy.store.put, [(self._key, entry_of(call, body))], self._policy.ttl)

    def _needs_allow_sampled(self, body: bytes) -> bool:
        """Return whether this answer holds tool calls, and the client has not opted in to those."""
        if self.control.allow_sampled or all(mark not in body for mark in _TOOL_MARKS):
            return False
        return not finished(body, tools=False)

    def _reply(self, hit: CacheHit) -> Reply | None:
        body = replace_id(hit.entry.body, self._fresh_id())
        if self._assembler is None:
            return Reply(200, body)
        try:
            events = replay.chunks(body, self._endpoint, usage=self._usage)
        except (KeyError, msgspec.DecodeError):  # a shape that has no stream form
            return None
        return Reply(200, stream=ReplayedStream(events, self._clock))


def entry_of(call: Call, body: bytes) -> CacheEntry:
    """Return the cache entry of an answer, with its usage and cost."""
    used = spent(call)
    price = call.routing.candidate.price
    return CacheEntry(body, used, None if price is None else cost(used, price))
