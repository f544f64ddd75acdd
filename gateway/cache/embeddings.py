"""Embeddings in the answer cache: each item of a list is kept by itself, what is missing is asked for."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Raw

from gateway.cache.control import CacheControl
from gateway.cache.lookup import CachePolicy, LookupResult, entry_of
from gateway.cache.single_flight import Fetched, StoreAction
from gateway.cache.store import CacheEntry, CacheHit
from gateway.core.call import EMBEDDINGS, Call, Handler, Reply, TokenUsage
from gateway.core.errors import INVALID, UPSTREAM_INVALID_RESPONSE, Rejection, UpstreamFailure
from gateway.wire.json import splice
from gateway.wire.json.members import edited, members, object_of
from gateway.wire.openai.demerge import read_items
from gateway.wire.openai.merge import Mergeable
from gateway.wire.openai.usage_split import shares

Fields = Mapping[str, bytes | Raw]

_LIST: Final = "data"


def narrowed(body: bytes, items: Sequence[bytes]) -> bytes:
    """The request with these items (JSON) as its `input`, which it has once; everything else as it was."""
    wanted = b"[%b]" % b",".join(items)
    edits = [(one.value, one.end, wanted) for one in members(body) if one.called("input")]
    return b"".join(edited(body, edits))


def items_of(answer: bytes, count: int) -> tuple[Fields, list[bytes]] | None:
    """The members of an answer, and its `count` items in order, unnumbered; None if it lacks one."""
    found = read_items(EMBEDDINGS, answer, count)
    if found is None:
        return None
    fields, items = found
    return fields, [object_of({name: one for name, one in item.items() if name != "index"}) for item in items]


def joined(fields: Fields, items: Sequence[bytes]) -> bytes:
    """An answer with these items in this order."""
    # An item that is kept is an object with something in it, so a comma follows.
    numbered = [b'%b,"index":%d}' % (item[:-1], at) for at, item in enumerate(items)]
    return object_of({**fields, _LIST: b"[%b]" % b",".join(numbered)})


def nothing_used(model: bytes) -> Fields:
    """The members of an answer that no upstream has made; `model` is the public name as JSON."""
    usage = msgspec.json.encode({"prompt_tokens": 0, "total_tokens": 0})
    return {"object": b'"list"', _LIST: b"[]", "model": model, "usage": usage}


_UNKNOWN: Final = "The upstream did not answer each item of the request once."


class EmbeddingsRequest:
    """Of an embeddings call."""

    def __init__(
        self, call: Call, terms: CachePolicy, wishes: CacheControl, parsed: Mergeable, keys: Sequence[bytes]
    ) -> None:
        """`keys` has one for each item of `parsed`."""
        self.wishes = wishes
        self.hit: LookupResult | None = None
        self.completed_flights = 0
        # With kept items in its answer, a flight is for those who take them as old as they are.
        self.flight = b"".join([*keys, b"<%f" % wishes.max_age, b"" if wishes.lookup else b"!"])
        self._terms = terms
        self._model = call.route.encoded if call.route is not None else b'""'
        self._keys = keys
        self._unique = dict(zip(keys, zip(parsed.items, parsed.weights, strict=True), strict=True))
        self._found: dict[bytes, CacheHit] = {}

    @property
    def forwarded(self) -> str:
        """Why an upstream has to be asked."""
        return "partial" if self._found else "miss" if self.wishes.lookup else "request"

    async def find(self) -> LookupResult | None:
        """All items, if all are kept; else what is kept of them is used when the others are asked for."""
        keys = list(self._unique)
        found = zip(keys, await self._terms.store.get(keys), strict=True)
        self._found = {
            key: kept for key, kept in found if kept is not None and kept.age <= self.wishes.max_age
        }
        if len(self._found) < len(keys):
            return None
        bodies = [self._found[key].entry.body for key in self._keys]
        tokens, cost = self._saved()
        self.hit = LookupResult(
            Reply(200, joined(nothing_used(self._model), bodies)),
            tokens,
            cost,
            max(kept.age for kept in self._found.values()),
            min(kept.left for kept in self._found.values()),
        )
        return self.hit

    async def fetch(self, inner: Handler, call: Call) -> Fetched:
        """Ask an upstream for what is missing."""
        missing = [key for key in self._unique if key not in self._found]
        partial_request = len(missing) < len(self._keys)
        if partial_request:
            call.body = narrowed(call.body, [self._unique[key][0] for key in missing])
            call.spans, call.estimate = splice.model_spans(call.body), None
        reply = await inner(call)
        if isinstance(reply, Rejection):
            return Fetched(reply)
        call.outcome = "ok"
        read = items_of(reply.body, len(missing))
        if read is None:
            if partial_request:
                raise UpstreamFailure(UPSTREAM_INVALID_RESPONSE, _UNKNOWN, cause=INVALID)
            return Fetched(reply)
        fields, items = read
        if self._found:
            call.saved, call.saved_cost = self._saved()  # of those who pay for the rest
        keep = self._keep(call, missing, items)
        if partial_request:
            bodies = dict(zip(missing, items, strict=True))
            bodies |= {key: kept.entry.body for key, kept in self._found.items()}
            reply = Reply(reply.status, joined(fields, [bodies[key] for key in self._keys]))
        return Fetched(reply, keep)

    def on_events(self, events: bytes) -> None:
        """Vectors are not streamed."""

    def on_complete(self, call: Call) -> StoreAction | None:
        """Vectors are not streamed."""
        return None

    def _keep(self, call: Call, keys: Sequence[bytes], items: Sequence[bytes]) -> StoreAction | None:
        route = call.route
        if call.modified or route is None or call.candidate not in route.candidates:
            return None
        whole = entry_of(call, b"")
        weights = [self._unique[key][1] for key in keys]
        inputs = shares(whole.tokens.input, weights)
        costs = shares(whole.cost, weights) if whole.cost is not None else [None] * len(keys)
        entries = [
            (key, CacheEntry(item, TokenUsage(given), cost))
            for key, item, given, cost in zip(keys, items, inputs, costs, strict=True)
        ]
        return partial(self._terms.store.put, entries, self._terms.ttl)

    def _saved(self) -> tuple[TokenUsage, int | None]:
        """What the items that are kept took."""
        entries = [kept.entry for kept in self._found.values()]
        costs = [one.cost for one in entries if one.cost is not None]
        return TokenUsage(sum(one.tokens.input for one in entries)), sum(costs) if costs else None
