"""What a call asks of the answer cache: its key, the kept answer to it, and a new one to be kept."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from gateway.cache import cached_answer as kept_answer
from gateway.cache import key as cache_key
from gateway.cache import replay
from gateway.cache.control import CacheControl
from gateway.cache.fan_out import ReplayedStream
from gateway.cache.key import RequestDigest
from gateway.cache.single_flight import Fetched, StoreAction
from gateway.cache.store import CacheEntry, CacheHit, CacheStore
from gateway.core.call import Call, Handler, Reply, TokenUsage
from gateway.core.clock import Clock
from gateway.core.errors import Rejection
from gateway.usage.call_usage import spent
from gateway.usage.cost import cost

_MAYBE_TOOLS: Final = (b"tool_calls", b"function_call")


class CachePolicy(NamedTuple):
    """How answers of one model are kept: where, for how long in seconds, and who gives them.

    `serving` tells what answers calls for the model, `headers` which of the client's travel there.
    """

    store: CacheStore
    ttl: float
    serving: bytes
    headers: Sequence[str] = ()


class LookupResult(NamedTuple):
    """A kept answer, ready to be given; what it took, and its age and time left in seconds."""

    reply: Reply
    tokens: TokenUsage
    cost: int | None
    age: float
    left: float


class CacheableRequest(Protocol):
    """One call. `flight` is the same for all that may share an upstream call; `hit` the answer once found.

    `landed` is how many flights had when it was looked for.
    """

    flight: bytes
    wishes: CacheControl
    hit: LookupResult | None
    completed_flights: int

    @property
    def forwarded(self) -> str:
        """Why an upstream has to be asked, in the words of RFC 9211."""

    async def find(self) -> LookupResult | None:
        """The kept answer, if it is one that this call may have. Raises Unreachable."""

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """See `cache_flight.Errand`."""

    def on_events(self, events: bytes) -> None:
        """See there."""

    def on_complete(self, call: Call) -> StoreAction | None:
        """See there."""


class WholeAnswerRequest:
    """Of a chat or completions call, whose answer is kept whole, whether it was streamed or not."""

    def __init__(
        self,
        call: Call,
        terms: CachePolicy,
        wishes: CacheControl,
        reading: RequestDigest,
        scope: bytes,
        fresh_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        self.wishes = wishes
        self.hit: LookupResult | None = None
        self.completed_flights = 0
        self._refused = False
        self._key = cache_key.key(scope, reading.digest)
        self.flight = self._key + reading.form + (b"" if wishes.lookup else b"!")
        self._endpoint = call.endpoint
        self._reading = reading
        self._terms = terms
        self._fresh_id = fresh_id
        self._clock = clock
        self._stream = replay.AnswerAssembler(call.endpoint, terms.store.largest) if call.stream else None

    @property
    def forwarded(self) -> str:
        """Why an upstream has to be asked."""
        return "request" if self._refused or not self.wishes.lookup else "miss"

    async def find(self) -> LookupResult | None:
        """The kept answer."""
        [kept] = await self._terms.store.get([self._key])
        self._refused = kept is not None and kept.age > self.wishes.max_age
        if kept is None or self._refused:
            return None
        if self._not_for_this(kept.entry.body):
            return None
        reply = self._reply(kept)
        if reply is None:
            return None
        entry = kept.entry
        self.hit = LookupResult(reply, entry.tokens, entry.cost, kept.age, kept.left)
        return self.hit

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Ask an upstream."""
        reply = await inner(call)
        if isinstance(reply, Rejection) or reply.stream is not None:
            return Fetched(reply)
        call.outcome = "ok"
        return Fetched(reply, self._keep(call, reply.body))

    def on_events(self, events: bytes) -> None:
        """A part of the stream."""
        if self._stream is not None:
            self._stream.feed(events)

    def on_complete(self, call: Call) -> StoreAction | None:
        """The stream has ended well."""
        body = self._stream.whole(call.tokens) if self._stream is not None else None
        return None if body is None else self._keep(call, body)

    def _keep(self, call: Call, body: bytes) -> StoreAction | None:
        """None for an answer that is not the only one to its question, or not whole."""
        route = call.route
        if call.modified or route is None or call.candidate not in route.candidates:
            return None  # a fallback's answer shall not outlive what made it necessary
        if len(body) > self._terms.store.largest:
            return None
        if not kept_answer.finished(body, tools=self.wishes.allow_sampled):
            return None
        return partial(self._terms.store.put, [(self._key, entry_of(call, body))], self._terms.ttl)

    def _not_for_this(self, body: bytes) -> bool:
        """Whether only those may have it who ask for any answer that is kept."""
        if self.wishes.allow_sampled or all(mark not in body for mark in _MAYBE_TOOLS):
            return False
        return not kept_answer.finished(body, tools=False)

    def _reply(self, kept: CacheHit) -> Reply | None:
        body = kept_answer.with_id(kept.entry.body, self._fresh_id())
        if self._stream is None:
            return Reply(200, body)
        try:
            events = replay.chunks(body, self._endpoint, usage=self._reading.usage)
        except (KeyError, msgspec.DecodeError):  # of a shape that no stream has
            return None
        return Reply(200, stream=ReplayedStream(events, self._clock))


def entry_of(call: Call, body: bytes) -> CacheEntry:
    """What is kept of an answer, and what it took."""
    used = spent(call)
    price = call.candidate.price if call.candidate is not None else None
    return CacheEntry(body, used, None if price is None else cost(used, price))
