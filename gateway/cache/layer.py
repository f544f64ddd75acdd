"""Kept answers, and one upstream call for all who want the same at once.

Two layers around the limits. `look` finds out what a call asks, and whether the answer is there: then the
call takes no tokens and no dollars of its key. `answer` gives it, or lets calls for the same share what they
get.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final, cast

from gateway.cache import key as cache_key
from gateway.cache.accounting import CacheMetrics
from gateway.cache.control import CacheControl, cache_control
from gateway.cache.embeddings import EmbeddingsRequest
from gateway.cache.key import RequestDigests
from gateway.cache.lookup import CacheableRequest, CachePolicy, LookupResult, WholeAnswerRequest
from gateway.cache.single_flight import Flights
from gateway.cache.store import CacheUnavailable
from gateway.core.call import EMBEDDINGS, Call, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import CACHE_MISS, Rejection
from gateway.usage.call_usage import NOTHING
from gateway.wire.openai import merge

_NAME: Final = "sluice"
_NOT_KEPT: Final = Rejection(
    CACHE_MISS, "No answer is kept for this request, and `only-if-cached` asks for nothing else."
)


class CacheLayer:
    """Both layers. Calls for models that `terms` does not name pass as if there were none."""

    def __init__(
        self,
        terms: Mapping[str, CachePolicy],
        flights: Flights,
        savings: CacheMetrics,
        fresh_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        """`fresh_id` makes the ids of answers that are given again."""
        self.flights = flights
        self._terms = terms
        self._savings = savings
        self._fresh_id = fresh_id
        self._clock = clock
        self._readings = RequestDigests()
        self._scope = lru_cache(maxsize=1024)(cache_key.scope)

    def look(self, inner: Handler) -> Handler:
        """The layer outside the limits."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            terms = self._terms.get(call.model)
            return inner(call) if terms is None else self._look(inner, call, terms)

        return handle

    def answer(self, inner: Handler) -> Handler:
        """The layer inside them."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            question = cast("CacheableRequest | None", call.cache_lookup)
            return inner(call) if question is None else self._answer(inner, call, question)

        return handle

    async def _look(self, inner: Handler, call: Call, terms: CachePolicy) -> Reply | Rejection:
        wanted = cache_control(call.headers)
        question = self._question(call, terms, wanted) if wanted is not None else None
        _note(call, hit=False, told="fwd=bypass")
        if question is None:
            self._savings.count("bypass")
            return _NOT_KEPT if wanted is not None and wanted.only_if_cached else await inner(call)
        question.completed_flights = self.flights.landed
        hit = await self._find(question)
        if hit is not None:
            call.cache_hit = hit.reply  # to be given, and told of, if the limits let it
        elif question.wishes.only_if_cached:
            self._savings.count("miss")
            _note(call, hit=False, told="fwd=miss; detail=only-if-cached")
            return _NOT_KEPT
        else:
            _note(call, hit=False, told=f"fwd={question.forwarded}")
        call.cache_lookup = question
        return await inner(call)

    async def _answer(self, inner: Handler, call: Call, question: CacheableRequest) -> Reply | Rejection:
        call.lease.hold(self._savings)
        if call.cache_hit is not None and question.hit is not None:
            return self._give(call, question.hit)
        if not question.wishes.store:  # it is told to nobody else, now or later
            self._savings.count("miss")
            return await inner(call)
        return await self._fly(inner, call, question)

    async def _fly(self, inner: Handler, call: Call, question: CacheableRequest) -> Reply | Rejection:
        flight = self.flights.of(inner, question.flight)
        if flight is None and self.flights.landed != question.completed_flights:
            # It may have come while the limits were asked.
            hit = await self._find(question)
            if hit is not None:
                return self._give(call, hit)
            flight = self.flights.of(inner, question.flight)
        flies = False
        try:
            while True:
                if flight is None:
                    flies, call.cached_by = True, ""
                    self._savings.count("miss")
                    flight = self.flights.start(inner, question.flight, call, question)
                outcome = await flight.share(call)
                if outcome is not None:
                    return outcome
                flight = self.flights.of(inner, question.flight)  # else it is this one's turn
        finally:
            if not flies:  # which is not known before its end
                self._savings.count("collapsed")

    def _give(self, call: Call, hit: LookupResult) -> Reply:
        self._savings.count("hit")
        _note(call, hit=True, told=f"hit; ttl={int(hit.left)}")
        call.response_notes["age"] = f"{int(hit.age)}"
        call.cached_by = "hit"
        call.tokens, call.cost = NOTHING, 0
        call.saved, call.saved_cost = hit.tokens, hit.cost
        return hit.reply

    async def _find(self, question: CacheableRequest) -> LookupResult | None:
        if not question.wishes.lookup:
            return None
        try:
            return await question.find()
        except CacheUnavailable:
            self._savings.count("store_error")
            return None

    def _question(self, call: Call, terms: CachePolicy, wanted: CacheControl) -> CacheableRequest | None:
        """None for a call whose answer is nothing to be kept."""
        headers = tuple([call.headers.get(name, "") for name in terms.headers])
        tenant = call.caller.name if call.caller is not None else None
        scope = self._scope(tenant, call.endpoint, call.model, terms.serving, headers)
        if call.endpoint == EMBEDDINGS:
            parsed = merge.parse(call.body, EMBEDDINGS, 0)
            if parsed is None:
                return None
            keys = cache_key.item_keys(scope, parsed.shared[1:], parsed.items)
            return None if keys is None else EmbeddingsRequest(call, terms, wanted, parsed, keys)
        reading = self._readings.of(call.body)
        if reading is None or not (reading.exact or wanted.allow_sampled):
            return None
        return WholeAnswerRequest(call, terms, wanted, reading, scope, self._fresh_id, self._clock)


def _note(call: Call, *, hit: bool, told: str) -> None:
    """The headers of its answer (RFC 9211)."""
    call.response_notes["x-cache-hit"] = "true" if hit else "false"
    call.response_notes["cache-status"] = f"{_NAME}; {told}"
