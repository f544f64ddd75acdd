"""The cache among the rest: fallbacks, headers, reloads, ledger, shared limits, an engine's own cache."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.call import Call
from doubles.flights import joined
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import FrozenClock, limited, used
from doubles.rawclient import Answer, call
from doubles.redis_server import RedisServer
from doubles.routed import routed
from doubles.script import Script, Until, compact, full
from doubles.settings import AUTH, OTHER_KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, COMPLETIONS, S0, ask

from gateway.config.load import load

C = {**C0, "temperature": 0}
S = {**S0, "temperature": 0}
ON = {"cache": {"enabled": True}}


async def held(upstream: FaultUpstream, gateway: InProcessGateway) -> tuple[asyncio.Future[Answer], asyncio.Event]:
    """A call that is upstream, and what lets its answer come."""
    gate = asyncio.Event()
    upstream.always(lambda call: [Until(gate), *replies.ordinary(call)])
    asking = asyncio.ensure_future(ask(gateway.port, C))
    await gateway.counted("sluice_cache_requests_total", 1, result="miss")
    return asking, gate


async def test_what_a_fallback_has_answered_is_not_kept(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    async with FaultUpstream() as other:
        retry = {"attempts": 1, "budget": 10}
        gateway = await start_gateway(routed(upstream.url, fallbacks=(other.url,), retry=retry, **ON))
        upstream.always(replies.error(500))
        for body in (C, S, C, S):
            answer = await ask(gateway.port, body)
            assert (answer.header("x-sluice-upstream-model"), answer.header("x-cache-hit")) == (
                "up-x",
                "false",
            )
        assert len(other.calls) == 4
        upstream.always(replies.ordinary)
        assert (await ask(gateway.port, C)).header("x-sluice-upstream-model") == "up-a"
        assert (await ask(gateway.port, C)).header("x-cache-hit") == "true"


async def test_headers_that_travel_count_and_others_do_not(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    forwarding = {"forward_headers": ["X-Tone"]}
    gateway = await start_gateway(settings(upstream.url, upstream=forwarding, **ON))
    for headers, hit in (
        ([("x-tone", "kind")], "false"),
        ([("x-tone", "kind"), ("x-other", "1")], "true"),
        ([("x-tone", "rude")], "false"),
        ([], "false"),
        ([("traceparent", "00-" + "1" * 32 + "-" + "2" * 16 + "-01")], "true"),
    ):
        assert (await ask(gateway.port, C, headers)).header("x-cache-hit") == hit, headers


async def test_only_models_that_say_so_keep_answers(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    config = settings(upstream.url)
    config["models"]["m-small"]["cache"] = {"enabled": True, "max_bytes": "4KiB"}
    gateway = await start_gateway(config)
    assert (await ask(gateway.port, C)).header("x-cache-hit") == "false"
    assert (await ask(gateway.port, {**C, "model": "m-embed"})).header("x-cache-hit") is None
    large = [full(compact({"choices": [{"finish_reason": "stop", "text": "x" * 600}]}))]
    upstream.always(large)
    for _ in (1, 2):  # an eighth of the room is too much for one
        answer = await ask(gateway.port, {**C, "seed": 1})
        assert answer.header("cache-status") == "sluice; fwd=miss"
    assert (await ask(gateway.port, C)).header("x-cache-hit") == "true"


async def reload(gateway: InProcessGateway, config: Mapping[str, Any], folder: Path) -> None:
    """Put another config in force."""
    file = folder / "other.yaml"
    file.write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None, loaded.problems
    await gateway._gateway.reload(loaded.config)


async def test_answers_outlive_a_reload_and_not_what_gave_them(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = settings(upstream.url, **ON)
    gateway = await start_gateway(config)
    await ask(gateway.port, C)
    config["retry"] = {"attempts": 3}
    await reload(gateway, config, tmp_path)
    assert (await ask(gateway.port, C)).header("x-cache-hit") == "true"
    config["models"]["m-small"]["candidates"][0]["model"] = "up-better"
    await reload(gateway, config, tmp_path)
    assert (await ask(gateway.port, C)).header("x-cache-hit") == "false"
    await gateway.counted("sluice_cache_entries", 2)
    del config["cache"]
    await reload(gateway, config, tmp_path)
    assert (await ask(gateway.port, C)).header("x-cache-hit") is None
    await gateway.counted("sluice_cache_entries", 0)
    await gateway.counted("sluice_cache_bytes", 0)
    assert len(upstream.calls) == 3


async def test_an_answer_that_comes_after_its_store_has_gone_is_not_counted(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = settings(upstream.url, **ON)
    gateway = await start_gateway(config)
    asking, gate = await held(upstream, gateway)
    del config["cache"]
    await reload(gateway, config, tmp_path)
    gate.set()
    assert (await asking).status == 200
    await gateway.outcome("ok", 1)
    await gateway.counted("sluice_cache_entries", 0)
    await gateway.counted("sluice_cache_bytes", 0)


async def test_who_comes_after_a_reload_does_not_share_connections_that_will_be_closed(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    config = settings(upstream.url, **ON)
    gateway = await start_gateway(config)
    before, gate = await held(upstream, gateway)
    config["upstreams"]["local"]["headers"] = {"x-team": "b"}
    await reload(gateway, config, tmp_path)
    after = asyncio.ensure_future(ask(gateway.port, C))
    await gateway.counted("sluice_cache_requests_total", 2, result="miss")
    gate.set()
    assert [one.status for one in await asyncio.gather(before, after)] == [200, 200]
    assert len(upstream.calls) == 2


async def test_the_ledger_tells_what_no_upstream_was_asked_for(
    upstream: FaultUpstream,
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FrozenClock(monkeypatch)
    usage = {"store": "sqlite", "path": str(tmp_path / "usage.db")}
    gateway = await start_gateway(limited(upstream.url, {}, price={"input": 1, "output": 2}, usage=usage, **ON))
    gate = asyncio.Event()
    upstream.always([Until(gate), *used(5, 2)])
    asking = [asyncio.ensure_future(ask(gateway.port, C, [AUTH])) for _ in range(3)]
    await joined(gateway, 2)
    gate.set()
    assert {one.status for one in await asyncio.gather(*asking)} == {200}
    await ask(gateway.port, C, [AUTH])
    await gateway.outcome("ok", 4)
    rows = (await call(gateway.admin_port, "GET", "/admin/usage")).json()
    assert {row["upstream"]: (row["requests"], row["input"], row["cost_usd"]) for row in rows} == {
        "cache": (3, 0, "0"),
        "local": (1, 5, "0.000009"),
    }
    await gateway.counted("sluice_cost_usd_total", 0.000009)
    await gateway.counted("sluice_cache_saved_usd_total", 0.000027)


async def test_a_hit_takes_no_tokens_of_a_shared_limit(
    upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as redis:
        section = {"url": redis.url, "timeout": "2s"}
        limits = {"tpm": 100, "rpm": 3, "usd_per_day": "0.0005"}
        price = {"input": 1, "output": 1}
        gateway = await start_gateway(limited(upstream.url, limits, price=price, redis=section, **ON))
        upstream.always(used(500, 2))
        body = {**C, "max_tokens": 2}
        assert (await ask(gateway.port, body, [AUTH])).status == 200
        for _ in (1, 2):
            hit = await ask(gateway.port, body, [AUTH])
            assert (hit.status, hit.header("x-cache-hit")) == (200, "true")
        other = await ask(gateway.port, {**body, "seed": 1}, [AUTH])
        assert (other.status, other.error["code"]) == (429, "insufficient_quota")
        assert (await ask(gateway.port, body, [AUTH])).error["type"] == "requests"
    assert len(upstream.calls) == 1


# vLLM's own cache.

SALTED = {"kind": "vllm", "cache_salt": "tenant"}


async def test_each_key_has_its_own_salt(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(limited(upstream.url, {}, upstream=SALTED, batching={"policy": "off"}))
    other = ("authorization", f"Bearer {OTHER_KEY}")
    for body, key in ((C0, AUTH), (C0, other), ({**C0, "x": 1}, AUTH), (S0, AUTH)):
        assert (await ask(gateway.port, body, [key])).status == 200
    salts = [json.loads(one.body)["cache_salt"] for one in upstream.calls]
    assert salts[0] == salts[2] == salts[3] != salts[1]
    assert len(salts[0]) == 32
    assert all("team" not in salt for salt in salts)
    first = upstream.calls[0].json()
    assert first == {**C0, "model": "up-small", "cache_salt": salts[0]}


async def test_calls_of_two_keys_are_not_merged(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    batching = {"policy": "window", "max_wait": "300ms", "max_size": 8}
    gateway = await start_gateway(limited(upstream.url, {}, upstream=SALTED, batching=batching))

    def answer(asked: Call) -> Script:
        prompts = asked.json()["prompt"]
        prompts = prompts if isinstance(prompts, list) else [prompts]
        choices = [
            {"index": at, "text": text, "finish_reason": "stop", "logprobs": None} for at, text in enumerate(prompts)
        ]
        return [full(compact({"id": "t", "object": "text_completion", "choices": choices}))]

    upstream.always(answer)
    body = {"model": "m-small", "max_tokens": 2}
    other = ("authorization", f"Bearer {OTHER_KEY}")
    asking = [
        ask(gateway.port, {**body, "prompt": text}, [key], COMPLETIONS)
        for text, key in (("a", AUTH), ("b", AUTH), ("c", other), ("d", other))
    ]
    answers = await asyncio.gather(*asking)
    assert [one.json()["choices"][0]["text"] for one in answers] == ["a", "b", "c", "d"]
    assert sorted(sorted(one.json()["prompt"]) for one in upstream.calls) == [["a", "b"], ["c", "d"]]
    assert len({one.json()["cache_salt"] for one in upstream.calls}) == 2
