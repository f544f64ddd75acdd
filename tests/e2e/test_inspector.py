"""`/admin/calls`, `/admin/calls/{id}` and `sluice explain ID`: calls that went through a gateway."""

import asyncio
import io
from asyncio import Event, to_thread
from pathlib import Path
from typing import Any

from doubles import replies
from doubles.gateway import GatewayProcess, InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import NEVER, Until, full
from doubles.settings import KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask
from openai import AsyncOpenAI

from gateway.cli.explain_call import run as explain


async def calls(admin_port: int, query: str = "") -> dict[str, Any]:
    """`/admin/calls` with this query."""
    answer = await call(admin_port, "GET", f"/admin/calls{query}")
    assert answer.status == 200
    return dict(answer.json())


async def kept(admin_port: int, id: str) -> dict[str, Any]:
    """`/admin/calls/{id}`, once the call has ended."""
    async with asyncio.timeout(20):
        while True:
            answer = await call(admin_port, "GET", f"/admin/calls/{id}")
            if answer.status == 200 and not answer.json()["call"]["summary"]["live"]:
                return dict(answer.json())
            await asyncio.sleep(0.005)


async def test_a_call_is_found_by_the_id_that_its_answer_has(gateway: InProcessGateway) -> None:
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        answer = await client.chat.completions.with_raw_response.create(**C0)
    id = answer.headers["x-request-id"]
    shown = (await kept(gateway.admin_port, id))["call"]
    summary = shown["summary"]
    assert (summary["id"], summary["status"], summary["outcome"]) == (id, 200, "ok")
    assert (summary["model"], summary["upstream"], summary["upstream_model"]) == ("m-small", "local", "up-small")
    assert [step["name"] for step in shown["steps"] if step["name"] != "decide"] == ["door", "attempt", "finish"]
    listed = await calls(gateway.admin_port)
    assert [one["id"] for one in listed["calls"]] == [id]
    assert (listed["kept"], listed["most"], listed["bodies"]) == (1, 1000, False)


async def test_a_stream_shows_first_token_and_pieces(gateway: InProcessGateway) -> None:
    await ask(gateway.port, S0, [("x-request-id", "a-stream")])
    steps = {step["name"]: step for step in (await kept(gateway.admin_port, "a-stream"))["call"]["steps"]}
    assert steps["stream"]["pieces"] >= 1
    assert steps["first_token"]["end_ms"] == steps["stream"]["start_ms"]


async def test_a_call_under_way_is_shown_live(upstream: FaultUpstream, gateway: InProcessGateway) -> None:
    go_on = Event()
    upstream.reply([Until(go_on), *replies.chat()])
    async with await RawClient.open(gateway.port) as client:
        await client.request("POST", CHAT, C0, [("x-request-id", "waiting")])
        await upstream.received(1)
        assert [one["id"] for one in (await calls(gateway.admin_port))["live"]] == ["waiting"]
        answer = await call(gateway.admin_port, "GET", "/admin/calls/waiting")
        assert answer.json()["why"] == ["It is under way."]
        go_on.set()
        assert (await client.response()).status == 200
    assert (await kept(gateway.admin_port, "waiting"))["call"]["summary"]["status"] == 200
    assert (await calls(gateway.admin_port))["live"] == []


async def test_an_unknown_id_is_a_404_and_a_bad_filter_is_named(gateway: InProcessGateway) -> None:
    answer = await call(gateway.admin_port, "GET", "/admin/calls/none")
    assert answer.status == 404
    assert "none" in answer.json()["error"]
    assert "status" in (await calls(gateway.admin_port, "?status=abc"))["error"]


async def test_zero_calls_switches_it_off(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, inspector={"calls": 0}))
    await ask(gateway.port, C0)
    await gateway.outcome("ok")
    assert (await calls(gateway.admin_port))["calls"] == []


async def test_a_call_that_went_elsewhere_says_why(
    upstream: FaultUpstream, other: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = settings(upstream.url, retry={"attempts": 2})
    config["upstreams"]["spare"] = {"base_url": other.url}
    config["models"]["m-small"]["candidates"].append({"upstream": "spare", "model": "up-small"})
    gateway = await start_gateway(config)
    upstream.reply([full(b"{}", 500)])
    assert (await ask(gateway.port, C0, [("x-request-id", "moved")])).status == 200
    shown = await kept(gateway.admin_port, "moved")
    attempts = [step for step in shown["call"]["steps"] if step["name"] == "attempt"]
    assert [(step["upstream"], step["verdict"]) for step in attempts] == [
        ("local", "server_error 500"),
        ("spare", "ok"),
    ]
    assert shown["why"][0].startswith("local/up-small failed (server_error 500)")
    assert shown["why"][1] == "spare/up-small answered, not the first candidate local/up-small."


async def test_limits_before_and_after_are_those_of_the_key(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    config = settings(upstream.url, keys=True)
    config["keys"][0]["limits"] = {"rpm": 10, "tpm": 60}
    gateway = await start_gateway(config)
    answer = await ask(gateway.port, C0, [("authorization", f"Bearer {KEY}"), ("x-request-id", "limited")])
    assert answer.status == 200
    limits = (await kept(gateway.admin_port, "limited"))["call"]["limits"]
    assert limits["before"] == {"requests": 10, "tokens": 60}
    assert limits["after"]["requests"] == 9
    assert limits["after"]["tokens"] < 60
    assert limits["reserved_tokens"] > 0


async def test_workers_are_asked_together(upstream: FaultUpstream, tmp_path: Path) -> None:
    config = settings(upstream.url, server={"workers": 2})
    with GatewayProcess(config, tmp_path) as gateway:
        for number in range(8):
            assert (await ask(gateway.port, C0, [("x-request-id", f"call-{number}")])).status == 200
        for number in range(8):
            assert (await kept(gateway.admin_port, f"call-{number}"))["call"]["summary"]["status"] == 200
        page = await calls(gateway.admin_port, "?limit=5")
        rest = await calls(gateway.admin_port, f"?limit=5&before={page['next']}")
        listed = page["calls"] + rest["calls"]
        assert sorted(one["id"] for one in listed) == [f"call-{number}" for number in range(8)]
        assert [one["position"] for one in listed] == sorted((one["position"] for one in listed), reverse=True)
        assert rest["next"] is None
        assert (await call(gateway.admin_port, "GET", "/admin/calls/none")).status == 404
        out, err = io.StringIO(), io.StringIO()
        assert await to_thread(explain, "call-3", gateway.admin_url, None, {}, out, err) == 0
        assert "call-3" in out.getvalue()
        assert "attempt" in out.getvalue()


async def test_explain_says_where_it_looked_in_vain(gateway: InProcessGateway) -> None:
    out, err = io.StringIO(), io.StringIO()
    admin = f"http://127.0.0.1:{gateway.admin_port}"
    assert await to_thread(explain, "nobody", admin, None, {}, out, err) == 1
    assert "keeps no call with the id nobody" in err.getvalue()
    assert await to_thread(explain, "nobody", "http://127.0.0.1:1", None, {}, out, err) == 1
    assert "does not answer" in err.getvalue()


async def test_bodies_only_where_the_config_says_so(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    config = settings(upstream.url, keys=True, inspector={"bodies": True})
    config["keys"].append({"name": "private", "key": "private-key-000", "keep_bodies": False})
    gateway = await start_gateway(config)
    mine, theirs = ("authorization", f"Bearer {KEY}"), ("authorization", "Bearer private-key-000")
    secret = {"model": "m-small", "messages": [{"role": "user", "content": f"my key is {KEY}, hello"}]}
    for id, body, key in (
        ("whole", secret, mine),
        ("stream", {**secret, "stream": True}, mine),
        ("off", secret, theirs),
    ):
        assert (await ask(gateway.port, body, [key, ("x-request-id", id)])).status == 200
    for id in ("whole", "stream"):
        bodies = (await kept(gateway.admin_port, id))["call"]["bodies"]
        assert bodies["turns"] == [{"role": "user", "part": "text", "text": "my key is ***, hello"}]
        assert [(turn["role"], turn["part"]) for turn in bodies["answer"]] == [("assistant", "text")]
        assert bodies["answer"][0]["text"]
        assert KEY not in str(bodies)
    assert (await kept(gateway.admin_port, "off"))["call"]["bodies"] is None
    assert (await calls(gateway.admin_port))["bodies"] is True


async def test_a_client_that_leaves_is_told_apart(upstream: FaultUpstream, gateway: InProcessGateway) -> None:
    upstream.reply([NEVER])
    client = await RawClient.open(gateway.port)
    await client.request("POST", CHAT, C0, [("x-request-id", "left")])
    await upstream.received(1)
    client.writer.close()
    await gateway.outcome("client_gone")
    assert (await kept(gateway.admin_port, "left"))["why"][0] == "The client left before the answer was complete."
