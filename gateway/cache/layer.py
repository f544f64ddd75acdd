"""The cache layers: serve stored answers, and make one upstream call for identical concurrent requests.

Two layers around the key limits. `lookup`, outside them, looks for a stored answer: a hit takes no tokens
and no dollars from the key. `answer`, inside them, serves the hit or shares one upstream call.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final

from gateway.cache import key as cache_key
from gateway.cache.accounting import CacheMetrics
from gateway.cache.control import CacheControl, cache_control
from gateway.cache.embeddings import EmbeddingsRequest
from gateway.cache.key import RequestDigests
from gateway.cache.lookup import CacheableRequest, CachePolicy, GenerationRequest, LookupResult
from gateway.cache.single_flight import Flights
from gateway.cache.store import CacheUnavailable
from gateway.core.call import Call, Handler, Reply
from gateway.core.clock import Clock
from gateway.core.errors import CACHE_MISS, Rejection
from gateway.usage.call_usage import NOTHING
from gateway.wire.openai import merge
from gateway.wire.request_body import fields_of

_NAME: Final = "sluice"
_NOT_CACHED: Final = Rejection(CACHE_MISS, "No answer is cached for this request, which is `only-if-cached`.")


class CacheLayer:
    """Both layers. Calls for models without a policy pass through."""

    def __init__(
        self,
        policies: Mapping[str, CachePolicy],
        flights: Flights,
        metrics: CacheMetrics,
        fresh_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        """`fresh_id` makes the ids of answers served from the cache."""
        self.flights = flights
        self._policies = policies
        self._metrics = metrics
        self._fresh_id = fresh_id
        self._clock = clock
        self._digests = RequestDigests()
        self._requests: dict[Call, CacheableRequest] = {}  # between the two layers
        self._scope = lru_cache(maxsize=1024)(cache_key.scope)

    def lookup(self, inner: Handler) -> Handler:
        """Wrap `inner` in the layer outside the limits."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            policy = self._policies.get(call.routing.route.name)
            return inner(call) if policy is None else self._lookup(inner, call, policy)

        return handle

    def answer(self, inner: Handler) -> Handler:
        """Wrap `inner` in the layer inside them."""

        def handle(call: Call) -> Awaitable[Reply | Rejection]:
            request = self._requests.get(call)
            return inner(call) if request is None else self._answer(inner, call, request)

        return handle

    async def _lookup(self, inner: Handler, call: Call, policy: CachePolicy) -> Reply | Rejection:
        control = cache_control(call.request.headers)
        request = self._cacheable(call, policy, control) if control is not None else None
        _set_headers(call, hit=False, status="fwd=bypass")
        if request is None:
            self._metrics.count("bypass")
            return _NOT_CACHED if control is not None and control.only_if_cached else await inner(call)
        request.completed_flights = self.flights.completed
        hit = await self._find(request)
        if hit is not None:
            call.cache_hit = hit.reply  # served, and counted, once the limits have admitted the call
        elif request.control.only_if_cached:
            self._metrics.count("miss")
            _set_headers(call, hit=False, status="fwd=miss; detail=only-if-cached")
            return _NOT_CACHED
        else:
            _set_headers(call, hit=False, status=f"fwd={request.forwarded}")
        self._requests[call] = request
        try:
            return await inner(call)
        finally:
            del self._requests[call]

    async def _answer(self, inner: Handler, call: Call, request: CacheableRequest) -> Reply | Rejection:
        call.lease.hold(self._metrics)
        if call.cache_hit is not None and request.hit is not None:
            return self._serve_hit(call, request.hit)
        if not request.control.store:  # neither stored nor shared
            self._metrics.count("miss")
            return await inner(call)
        return await self._share(inner, call, request)

    async def _share(self, inner: Handler, call: Call, request: CacheableRequest) -> Reply | Rejection:
        flight = self.flights.of(inner, request.flight_key)
        if flight is None and self.flights.completed != request.completed_flights:
            # The answer may have been stored since the lookup.
            hit = await self._find(request)
            if hit is not None:
                return self._serve_hit(call, hit)
            flight = self.flights.of(inner, request.flight_key)
        started = False
        try:
            while True:
                if flight is None:
                    started, call.cached_by = True, ""
                    self._metrics.count("miss")
                    flight = self.flights.start(inner, request.flight_key, call, request)
                outcome = await flight.share(call)
                if outcome is not None:
                    return outcome
                # The failure was due to the first caller's deadline or budget: join or start the next flight.
                flight = self.flights.of(inner, request.flight_key)
        finally:
            if not started:  # only known at the end
                self._metrics.count("collapsed")

    def _serve_hit(self, call: Call, hit: LookupResult) -> Reply:
        self._metrics.count("hit")
        _set_headers(call, hit=True, status=f"hit; ttl={int(hit.expires_in)}")
        call.response.notes["age"] = f"{int(hit.age)}"
        call.cached_by = "hit"
        call.usage.tokens, call.usage.cost = NOTHING, 0
        call.usage.saved, call.usage.saved_cost = hit.tokens, hit.cost
        return hit.reply

    async def _find(self, request: CacheableRequest) -> LookupResult | None:
        if not request.control.lookup:
            return None
        try:
            return await request.find()
        except CacheUnavailable:
            self._metrics.count("store_error")
            return None

    def _cacheable(self, call: Call, policy: CachePolicy, control: CacheControl) -> CacheableRequest | None:
        """Return None for a call whose answer cannot be cached."""
        endpoint = call.request.endpoint
        if not endpoint.cacheable:
            return None
        headers = tuple([call.request.headers.get(name, "") for name in policy.headers])
        tenant = call.caller.name
        scope = self._scope(tenant, str(endpoint), call.request.model, policy.serving, headers)
        if not endpoint.generates:
            parsed = merge.parse(call.request.body, endpoint, 0)
            if parsed is None:
                return None
            keys = cache_key.item_keys(scope, parsed.shared[1:], parsed.items)
            return None if keys is None else EmbeddingsRequest(call, policy, control, parsed, keys)
        digest = self._digests.of(call.request.body, fields_of(call.request))
        if digest is None or not (digest.exact or control.allow_sampled):
            return None
        return GenerationRequest(call, policy, control, digest, scope, self._fresh_id, self._clock)


def _set_headers(call: Call, *, hit: bool, status: str) -> None:
    """Set `x-cache-hit` and `cache-status` (RFC 9211)."""
    call.response.notes["x-cache-hit"] = "true" if hit else "false"
    call.response.notes["cache-status"] = f"{_NAME}; {status}"
