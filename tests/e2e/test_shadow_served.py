"""Shadow calls end to end: both answers in the file, nobody waits, nobody's key pays."""

import asyncio
import errno
import json
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles import replies
from doubles.gateway import StartGateway
from doubles.rawclient import call as raw_call
from doubles.routed import routed
from doubles.script import Step, Until, compact, full
from doubles.settings import AUTH, KEY
from doubles.upstream import FaultUpstream
from doubles.virtual_time import virtual
from doubles.vocabulary import ask
from doubles.waiting import eventually

from gateway.cli.router.dataset import load
from gateway.config import load as config_load
from gateway.routing.cascade import shadow, shadow_file

BODY: dict[str, Any] = {"model": "m-small", "messages": [{"role": "user", "content": "Add 17 and 25."}]}
CHEAP, STRONG = "It is 42 then", "It is 42"


@pytest.fixture
async def strong() -> AsyncIterator[FaultUpstream]:
    """The dear upstream."""
    async with FaultUpstream() as one:
        one.always(said(STRONG, "up-b"))
        yield one


def said(text: str, model: str) -> list[Step]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return [full(compact({"object": "chat.completion", "model": model, "choices": [choice], "usage": usage}))]


def config(cheap: FaultUpstream, strong: FaultUpstream, file: Path, **complexity: Any) -> dict[str, Any]:
    """Every call is shadowed."""
    cheap.always(said(CHEAP, "up-a"))
    made = routed(cheap.url, strong.url, usage={"store": "sqlite", "path": str(file.parent / "usage.db")})
    small = made["models"]["m-small"]
    small |= {
        "route": "complexity",
        "complexity": {"strong_share": 0, **complexity},
        "shadow": {"share": 1, "path": str(file)},
    }
    small["candidates"][0]["price"] = {"input": 1, "output": 2}
    small["candidates"][1]["price"] = {"input": 10, "output": 20}
    return made | {"keys": [{"name": "team-a", "key": KEY, "limits": {"usd_per_day": 1, "rpm": 100}}]}


async def written(file: Path, lines: int = 1) -> list[dict[str, Any]]:
    """Waits for so many lines."""
    await eventually(lambda: file.exists() and file.read_bytes().count(b"\n") >= lines, "lines")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("share", [0, 1], ids=["cheap first", "strong first"])
async def test_both_answers_are_written_down_for_calibrate(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path, share: int
) -> None:
    file = tmp_path / "shadow.jsonl"
    gateway = await start_gateway(config(upstream, strong, file, strong_share=share))
    body = json.dumps({**BODY, "temperature": 0}, indent=1).encode()
    answer = await ask(gateway.port, body, [AUTH])
    assert answer.header("x-sluice-upstream") == ("b" if share else "a")
    assert answer.header("x-sluice-attempts") == "1"
    (line,) = await written(file)
    assert (line["weak"], line["strong"]) == (CHEAP, STRONG)
    assert (line["weak_ok"], line["strong_ok"], line["guessed"]) == (0.857, 1.0, True)  # 3 of 4 and 3 words
    assert line["temperature"] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (row,) = load(file)
    assert (row.prompt.text, row.weak, row.strong) == ("Add 17 and 25.", 0.857, 1.0)


async def test_the_second_answer_is_booked_under_a_name_of_its_own(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    gateway = await start_gateway(config(upstream, strong, file))
    answer = await ask(gateway.port, BODY, [AUTH])
    assert answer.header("x-sluice-cost-usd") == "0.000009"
    await written(file)
    await gateway.counted("sluice_cost_usd_total", 90e-6, key="shadow", upstream="b")
    await gateway.counted("sluice_cost_usd_total", 9e-6, key="team-a")
    await gateway.counted("sluice_requests_total", 1)
    report = (await raw_call(gateway.admin_port, "GET", "/admin/usage")).body
    used = {row["key"]: row["cost_usd"] for row in json.loads(report)}
    assert {name: float(usd) for name, usd in used.items()} == {"team-a": 9e-6, "shadow": 90e-6}
    sent = strong.calls[0]
    assert sent.json()["messages"] == BODY["messages"]


async def test_nobody_waits_and_no_more_than_two_are_under_way(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    gateway = await start_gateway(config(upstream, strong, file))
    gate = asyncio.Event()
    strong.always([Until(gate), *said(STRONG, "up-b")])
    for _ in range(5):
        assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    await strong.holding(shadow.MAX_IN_FLIGHT)
    gate.set()
    await written(file, shadow.MAX_IN_FLIGHT)
    assert len(strong.calls) == shadow.MAX_IN_FLIGHT
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    await written(file, shadow.MAX_IN_FLIGHT + 1)


async def test_a_strong_answer_is_asked_for_once_where_several_could_give_it(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    made = config(upstream, strong, file)
    small = made["models"]["m-small"]
    small["candidates"].append(small["candidates"][1] | {"model": "another"})
    small["cascade"] = {"enabled": True}
    gateway = await start_gateway(made)
    strong.always(said("", "up-b"))  # which a cascade would take back
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    await written(file)
    assert len(strong.calls) == 1


async def test_what_fails_is_not_written(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    made = config(upstream, strong, file)
    made["retry"]["attempts"] = 1
    gateway = await start_gateway(made)
    strong.reply(replies.error(500))
    for _ in range(2):
        assert (await ask(gateway.port, BODY, [AUTH])).status == 200
        await gateway.counted("sluice_upstream_inflight", 0)
    assert len(await written(file)) == 1
    assert len(strong.calls) == 2


async def test_long_answers_are_left_out(
    upstream: FaultUpstream,
    strong: FaultUpstream,
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, long = tmp_path / "shadow.jsonl", "word " * 200
    monkeypatch.setattr(shadow, "LONGEST", 900)
    gateway = await start_gateway(config(upstream, strong, file))
    upstream.reply(said(long, "up-a"))  # nothing is asked for the second time
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    strong.reply(said(long, "up-b"))
    for calls in (1, 2):
        assert (await ask(gateway.port, BODY, [AUTH])).status == 200
        await gateway.counted("sluice_cost_usd_total", calls * 90e-6, key="shadow", upstream="b")
    assert [line["strong"] for line in await written(file)] == [STRONG]
    assert len(strong.calls) == 2


async def test_answers_are_compared_off_the_loop(
    upstream: FaultUpstream,
    strong: FaultUpstream,
    start_gateway: StartGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, threads, line = tmp_path / "shadow.jsonl", [], shadow.line
    monkeypatch.setattr(shadow, "line", lambda *args: threads.append(threading.get_ident()) or line(*args))
    gateway = await start_gateway(config(upstream, strong, file))
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    await written(file)
    assert threading.get_ident() not in threads
    assert len(threads) == 1


def test_of_long_answers_the_beginnings_are_compared() -> None:
    same = "same " * 4000
    found = shadow_file.line(b"{}", shadow_file.Pair(same + "one", same + "other", False, False))
    assert found is not None
    assert json.loads(found)["weak_ok"] == 1.0
    assert json.loads(found)["weak"] == same + "one"


async def test_streams_are_not_shadowed_and_nothing_is_without_a_share(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    made = config(upstream, strong, file)
    gateway = await start_gateway(made)
    upstream.reply(replies.chat_stream("x", model="up-a"))
    assert (await ask(gateway.port, {**BODY, "stream": True}, [AUTH])).status == 200
    made["models"]["m-small"]["shadow"] = {"path": str(file)}
    gateway = await start_gateway(made)
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    stack = (await raw_call(gateway.admin_port, "GET", "/admin/stack")).body
    assert b"Tiers" not in stack
    assert not strong.calls


async def test_a_gateway_that_ends_takes_its_shadows_with_it(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    made = config(upstream, strong, tmp_path / "shadow.jsonl")
    gateway = await start_gateway(made | {"usage": {"store": "off"}})
    strong.always([Until(asyncio.Event())])
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    await strong.holding(1)
    await gateway.stop()
    await strong.at_rest()


async def test_a_reload_ends_shadows_and_blames_nobody(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    made = config(upstream, strong, tmp_path / "shadow.jsonl")
    gateway = await start_gateway(made)
    strong.always([Until(asyncio.Event())])
    assert (await ask(gateway.port, BODY, [AUTH])).status == 200
    await strong.holding(1)
    made["upstreams"]["b"]["base_url"] = upstream.url
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    new = config_load.load(file, {}).config
    assert new is not None
    await gateway._gateway.reload(new)
    await strong.at_rest()
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="b")
    await gateway.counted("sluice_upstream_attempts_total", 1, upstream="b", result="ignore")


async def test_a_file_that_cannot_be_written_is_told_once_and_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = shadow_file.ShadowFile(str(tmp_path / "no" / "folder.jsonl"))
    for _ in range(2):
        await file.add(b"x\n")
    assert [record.message for record in caplog.records] == ["cannot write the shadow file: No such file or directory"]


async def test_a_pipe_is_no_file_and_nobody_waits_for_its_reader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = shadow_file.ShadowFile(str(tmp_path / "pipe"))
    adding = asyncio.ensure_future(file.add(b"x\n"))
    try:
        done, _ = await asyncio.wait([adding], timeout=5)
        assert done
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            await file.add(b"y\n")
            assert os.read(reader, 9) == b""
        finally:
            os.close(reader)
    finally:  # whoever waits for a reader has one
        os.close(os.open(tmp_path / "pipe", os.O_RDWR))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("full", [True, False])
async def test_a_line_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    write, sizes = os.write, [4, 2]

    def short(file: int, data: bytes) -> int:
        if full and not sizes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: sizes.pop() if sizes else None])

    path = tmp_path / "s"
    path.write_bytes(b"earlier\n")
    monkeypatch.setattr(os, "write", short)
    await shadow_file.ShadowFile(str(path)).add(b"0123456789\n")
    monkeypatch.undo()
    assert path.read_bytes() == (b"earlier\n" if full else b"earlier\n0123456789\n")


async def test_the_file_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_file, "MAX_BYTES", 5)
    file = shadow_file.ShadowFile(str(tmp_path / "s"))
    await file.add(b"1234\n")
    await file.add(b"5\n")
    assert (tmp_path / "s").read_bytes() == b"1234\n"


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a": "\\ud800"}', b"[" * 100_000])
def test_a_body_that_cannot_be_written_down_is_left_out(body: bytes) -> None:
    pair = shadow_file.Pair("a", "b", False, False)
    found = shadow_file.line(body, pair)
    assert found is None or found.count(b"\n") == 1


def test_a_doubtful_answer_is_marked_as_wrong() -> None:
    found = shadow_file.line(b"{}", shadow_file.Pair("same", "same", True, True))
    assert found is not None
    assert (json.loads(found)["weak_ok"], json.loads(found)["strong_ok"]) == (0.0, 0.0)


async def test_max_per_minute_bounds_the_second_answers(
    upstream: FaultUpstream, strong: FaultUpstream, start_gateway: StartGateway, tmp_path: Path
) -> None:
    file = tmp_path / "shadow.jsonl"
    made = config(upstream, strong, file)
    made["models"]["m-small"]["shadow"]["max_per_minute"] = 1
    gateway = await start_gateway(made)
    for _ in range(5):
        assert (await ask(gateway.port, BODY, [AUTH])).status == 200
        await written(file)
    assert len(strong.calls) == 1


@virtual
async def test_max_per_minute_spaces_them_evenly(tmp_path: Path) -> None:
    sample = shadow.ShadowSample(1.0, 6, shadow_file.ShadowFile(str(tmp_path / "shadow.jsonl")))
    loop = asyncio.get_running_loop()
    start, times = loop.time(), []
    while loop.time() < start + 60:
        if sample.due and sample.limiter is not None:
            await sample.limiter.acquire()
            times.append(loop.time() - start)
        await asyncio.sleep(0.25)
    assert times == [0, 10, 20, 30, 40, 50]
