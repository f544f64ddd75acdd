"""Embeddings in the cache: every input item is cached separately, and only the missing ones go upstream."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from gateway.cache.control import CacheControl
from gateway.cache.lookup import CachePolicy, LookupResult, entry_of
from gateway.cache.single_flight import Fetched, StoreAction
from gateway.cache.store import CacheEntry, CacheHit
from gateway.core.call import Call, Handler, Reply, TokenUsage
from gateway.core.errors import INVALID, UPSTREAM_INVALID_RESPONSE, Rejection, UpstreamFailure
from gateway.wire.json import splice
from gateway.wire.json.members import edited, members, object_of
from gateway.wire.openai.demerge import read_items
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.merge import Mergeable
from gateway.wire.openai.usage_split import shares, sum_usage

Fields = Mapping[str, bytes | Raw]

_LIST: Final = "data"


def narrowed(body: bytes, items: Sequence[bytes]) -> bytes:
    """Return the request with only these items (JSON) as its `input`; all else byte for byte."""
    wanted = b"[%b]" % b",".join(items)
    edits = [(member.value, member.end, wanted) for member in members(body) if member.called("input")]
    return b"".join(edited(body, edits))


def items_of(answer: bytes, count: int) -> tuple[Fields, list[bytes]] | None:
    """Return the answer's members and its `count` items in order, without `index`; None if one is missing."""
    parsed = read_items(EMBEDDINGS, answer, count)
    if parsed is None:
        return None
    fields, items = parsed
    return fields, [object_of({name: value for name, value in item.items() if name != "index"}) for item in items]


def joined(fields: Fields, items: Sequence[bytes]) -> bytes:
    """Return an answer with these items in this order."""
    # A cached item is a non-empty object, so a comma follows.
    numbered = [b'%b,"index":%d}' % (item[:-1], at) for at, item in enumerate(items)]
    return object_of({**fields, _LIST: b"[%b]" % b",".join(numbered)})


def cached_fields(model: bytes, tokens: TokenUsage) -> Fields:
    """Return the members of an answer served wholly from the cache; `model` is the public name as JSON."""
    return {"object": b'"list"', _LIST: b"[]", "model": model, "usage": _usage_block(tokens)}


def _with_usage(fields: Fields, cached: TokenUsage) -> Fields:
    """Return the members with the usage of the cached items added, if the upstream reported any."""
    if "usage" not in fields:
        return fields
    return {**fields, "usage": sum_usage([Raw(fields["usage"]), Raw(_usage_block(cached))])[0]}


def _usage_block(tokens: TokenUsage) -> bytes:
    return msgspec.json.encode({"prompt_tokens": tokens.input, "total_tokens": tokens.input})


_INCOMPLETE: Final = "The upstream did not answer each item of the request once."


class EmbeddingsRequest:
    """`CacheableRequest` of an embeddings call."""

    def __init__(
        self,
        call: Call,
        policy: CachePolicy,
        control: CacheControl,
        parsed: Mergeable,
        keys: Sequence[bytes],
    ) -> None:
        """`keys` has one key per item of `parsed`."""
        self.control = control
        self.hit: LookupResult | None = None
        self.completed_flights = 0
        # The shared answer may contain cached items, so callers must agree on the age they accept.
        self.flight_key = b"".join([*keys, b"<%f" % control.max_age, b"" if control.lookup else b"!"])
        self._policy = policy
        self._model = call.routing.route.encoded
        self._keys = keys
        self._unique = dict(zip(keys, zip(parsed.items, parsed.weights, strict=True), strict=True))
        self._hits: dict[bytes, CacheHit] = {}

    @property
    def forwarded(self) -> str:
        """Return why the call goes upstream."""
        return "partial" if self._hits else "miss" if self.control.lookup else "request"

    async def find(self) -> LookupResult | None:
        """Return the answer if every item is cached; otherwise remember the hits for `fetch`."""
        keys = list(self._unique)
        hits = zip(keys, await self._policy.store.get(keys), strict=True)
        self._hits = {key: hit for key, hit in hits if hit is not None and hit.age <= self.control.max_age}
        if len(self._hits) < len(keys):
            return None
        bodies = [self._hits[key].entry.body for key in self._keys]
        tokens, cost = self._saved()
        self.hit = LookupResult(
            Reply(200, joined(cached_fields(self._model, tokens), bodies)),
            tokens,
            cost,
            max(hit.age for hit in self._hits.values()),
            min(hit.expires_in for hit in self._hits.values()),
        )
        return self.hit

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Fetch the missing items, and join them with the cached ones."""
        missing = [key for key in self._unique if key not in self._hits]
        partial_request = len(missing) < len(self._keys)
        if partial_request:
            call.request.body = narrowed(call.request.body, [self._unique[key][0] for key in missing])
            call.request.spans, call.usage.estimate = splice.model_spans(call.request.body), None
        reply = await inner(call)
        if isinstance(reply, Rejection):
            return Fetched(reply)
        call.response.outcome = "ok"
        parsed = items_of(reply.body, len(missing))
        if parsed is None:
            if partial_request:
                raise UpstreamFailure(UPSTREAM_INVALID_RESPONSE, _INCOMPLETE, cause=INVALID)
            return Fetched(reply)
        fields, items = parsed
        if self._hits:
            call.usage.saved, call.usage.saved_cost = self._saved()
            fields = _with_usage(fields, call.usage.saved)
        store = self._store_action(call, missing, items)
        if partial_request:
            bodies = dict(zip(missing, items, strict=True))
            bodies |= {key: hit.entry.body for key, hit in self._hits.items()}
            reply = Reply(reply.status, joined(fields, [bodies[key] for key in self._keys]))
        return Fetched(reply, store)

    def on_events(self, events: bytes) -> None:
        """Do nothing: embeddings are not streamed."""

    def on_complete(self, call: Call) -> StoreAction | None:
        """Return None: embeddings are not streamed."""
        return None

    def _store_action(self, call: Call, keys: Sequence[bytes], items: Sequence[bytes]) -> StoreAction | None:
        route = call.routing.route
        if call.modified or call.routing.candidate not in route.candidates or not self._policy.store.up:
            return None
        total = entry_of(call, b"")
        weights = [self._unique[key][1] for key in keys]
        inputs = shares(total.tokens.input, weights)
        costs = shares(total.cost, weights) if total.cost is not None else [None] * len(keys)
        entries = [
            (key, CacheEntry(item, TokenUsage(tokens), cost))
            for key, item, tokens, cost in zip(keys, items, inputs, costs, strict=True)
        ]
        return partial(self._policy.store.put, entries, self._policy.ttl)

    def _saved(self) -> tuple[TokenUsage, int | None]:
        """Return what the cached items used and cost when they were made."""
        entries = [hit.entry for hit in self._hits.values()]
        costs = [entry.cost for entry in entries if entry.cost is not None]
        return TokenUsage(sum(entry.tokens.input for entry in entries)), sum(costs) if costs else None
