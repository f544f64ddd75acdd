"""A gateway with everything on the dashboards: an engine, a provider, a failing one, keys with limits."""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

from doubles import replies
from doubles.call import Call
from doubles.limited import counted, used_stream
from doubles.rawclient import RawClient
from doubles.rawclient import call as raw_call
from doubles.redis_server import RedisServer
from doubles.script import DONE, RST, Pause, Script, compact, full, piece, stop, stream
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import CHAT, EMBEDDINGS

KEYS = {name: f"gw-key-of-{name}-0123456789" for name in ("team-a", "team-b", "team-c")}
PRICE = {"input": 3, "output": 15, "cached_input": 0.3}
SLOWLY = Pause(0.02)
TIGHT_BYTES = 4000
TOO_LONG = "This model's maximum context length is 1000 tokens. However, your request has 1300 input tokens."


def config(engine: FaultUpstream, paid: FaultUpstream, broken: FaultUpstream, redis: RedisServer) -> dict[str, Any]:
    """The config; `engine` has two concurrency slots only, so that calls queue for it."""
    at_engine, at_paid = {"upstream": "engine"}, {"upstream": "paid", "price": PRICE}
    failing = {"upstream": "broken", "price": PRICE}
    made = settings(engine.url, redis={"url": redis.url, "timeout": "250ms"}, usage={"store": "redis"})
    made["upstreams"] = {
        "engine": {"base_url": engine.url, "kind": "vllm", "max_concurrency": 2},
        "measured": {"base_url": engine.url, "kind": "vllm", "max_concurrency": "auto"},
        "paid": {"base_url": paid.url},
        "broken": {"base_url": broken.url},
    }
    made["models"] = {
        "small": {"candidates": [at_engine]},
        "by-cache": {"candidates": [{"upstream": "measured"}]},
        "large": {"candidates": [at_paid], "cache": {"enabled": True}},
        "fragile": {"candidates": [failing, at_paid]},
        "falling": {"candidates": [failing], "fallbacks": ["large"]},
        "doomed": {"candidates": [failing]},
        "unpriced": {"candidates": [{"upstream": "paid"}]},
        "routed": {"candidates": [at_engine, at_paid], "route": "cheapest"},
        "tiered": {
            "candidates": [at_engine, at_paid],
            "route": "complexity",
            "cascade": {"enabled": True},
        },
        "tight": {"candidates": [{**at_engine, "context_window": 1000}], "on_overflow": "drop_oldest"},
        "embed": {"candidates": [at_engine], "batching": {"max_inflight": 1}},
    }
    made["retry"] = {"attempts": 2, "backoff_base": "1ms"}
    limits = {"team-a": {}, "team-b": {"rpm": 3}, "team-c": {"usd_per_day": 0.5}}
    made["keys"] = [{"name": name, "key": KEYS[name], "limits": limit} for name, limit in limits.items()]
    return made


class Engine:
    """Scripts the fake engine and the fake provider."""

    def __init__(self, upstream: FaultUpstream) -> None:
        self._upstream = upstream
        upstream.has_metrics = True
        upstream.always(self.answer)

    def answer(self, call: Call) -> Script:
        """The steps for this call; its last message selects them."""
        if call.target == "/metrics":
            return [full(self._metrics(), content_type="text/plain; version=0.0.4")]
        if call.target.endswith("/chat/completions/batch"):
            return replies.error(404)
        if not call.target.endswith("/chat/completions"):
            return [SLOWLY, *replies.ordinary(call)]
        request = call.json()
        if request["model"] == "tight" and len(call.body) > TIGHT_BYTES:
            return replies.error(400, TOO_LONG, code=400)
        text = request["messages"][-1]["content"]
        if request.get("stream"):
            if text == "cut":
                return [*stream(piece("po"), end=False), Pause(0.01), RST]
            if text == "uncounted":
                return [SLOWLY, *stream(piece("po"), stop(), DONE)]
            return [*stream(piece("po"), end=False), SLOWLY, *used_stream(120, 40)[2:]]
        finish = "length" if request["model"] == "small" else "stop"
        choice = {"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": finish}
        counts = counted(1200, 400, prompt_tokens_details={"cached_tokens": 800})
        return [SLOWLY, full(compact({"id": "c1", "model": "m", "choices": [choice], "usage": counts}))]

    def _metrics(self) -> bytes:
        """vLLM's series that the dashboards show."""
        done = len(self._upstream.calls)
        lines = [
            f"vllm:num_requests_running{{}} {self._upstream.in_flight}",
            "vllm:num_requests_waiting{} 0",
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="260"} 1.0',
            "vllm:kv_cache_usage_perc{} 0.25",
            f"vllm:prefix_cache_queries_total{{}} {done * 1200}",
            f"vllm:prefix_cache_hits_total{{}} {done * 800}",
            "vllm:num_preemptions_total{} 0",
            f"vllm:generation_tokens_total{{}} {done * 400}",
        ]
        for name in ("time_to_first_token_seconds", "request_queue_time_seconds"):
            lines += [f'vllm:{name}_bucket{{le="{bound}"}} {done}' for bound in ("0.1", "+Inf")]
            lines += [f"vllm:{name}_sum {done * 0.05}", f"vllm:{name}_count {done}"]
        return "\n".join([*lines, ""]).encode()


def body(model: str, text: str, **more: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def mix(number: int) -> Iterable[tuple[str, str, dict[str, Any]]]:
    """One round of calls: key, path, body. All but the cached calls differ by `number`."""
    fresh = f"{number} ping"
    long = [{"role": "user", "content": "word " * 600}, {"role": "assistant", "content": "word " * 600}]
    last = {"role": "user", "content": fresh}
    yield "team-a", CHAT, body("small", fresh)
    yield "team-a", CHAT, body("small", fresh, stream=True)
    yield "team-a", CHAT, body("large", "the same", temperature=0)
    yield "team-a", CHAT, body("large", "cut", stream=True)
    yield "team-a", CHAT, body("large", fresh, stream=True)
    yield "team-a", CHAT, body("small", "uncounted", stream=True)
    yield "team-a", CHAT, body("fragile", fresh)
    yield "team-a", CHAT, body("falling", fresh)
    yield "team-a", CHAT, body("doomed", fresh)
    yield "team-a", CHAT, body("unpriced", fresh)
    yield "team-a", CHAT, body("routed", fresh)
    yield "team-a", CHAT, body("tiered", fresh)
    yield "team-a", CHAT, {"model": "tight", "messages": [*long, last], "max_tokens": 10}
    yield "team-a", EMBEDDINGS, {"model": "embed", "input": fresh}
    yield "team-a", CHAT, body("nobody", fresh)
    yield "team-b", CHAT, body("small", fresh)
    yield "team-c", CHAT, body("large", fresh, max_tokens=500)


async def load(port: int, number: int, over: asyncio.Event) -> None:
    """Calls until `over` is set."""
    for round_ in itertools.count():
        for key, path, request in mix(number + 1000 * round_):
            if over.is_set():
                return
            await raw_call(port, "POST", path, request, [("authorization", f"Bearer {KEYS[key]}")])


async def leaving(port: int, over: asyncio.Event) -> None:
    """Clients that leave during their call, some of them out of a batch, until `over` is set."""
    for number in itertools.count():
        if over.is_set():
            return
        async with await RawClient.open(port) as client:
            request = {"model": "embed", "input": f"leaving {number}"}
            await client.request("POST", EMBEDDINGS, request, [("authorization", f"Bearer {KEYS['team-a']}")])
            await asyncio.sleep(0.03)
