"""`sluice batch` against a running gateway: what it prints, writes and exits with."""

import argparse
import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.limited import used
from doubles.settings import KEY
from doubles.upstream import FaultUpstream
from kit.batch_scene import batching, jsonl, line

from gateway.cli.batch.client import BatchView
from gateway.cli.batch.progress import duration, pace
from gateway.cli.batch.run import run
from gateway.cli.main import _parser


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path) -> InProcessGateway:
    config = batching(upstream.url, tmp_path)
    config["models"]["m-small"]["candidates"][0]["price"] = {"input": 100, "output": 100}
    upstream.always(used(5, 5))
    return await start_gateway(config)


async def sluice(gateway: InProcessGateway, *words: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of `sluice batch` with these words."""
    options: argparse.Namespace = _parser().parse_args(["batch", *map(str, words), "--url", f"{gateway.url}/v1"])
    out, err = io.StringIO(), io.StringIO()
    status = await asyncio.to_thread(run, options, {"OPENAI_API_KEY": KEY}, out, err, 0.01)
    return status, out.getvalue(), err.getvalue()


def written(folder: Path, *lines: Any) -> Path:
    file = folder / "in.jsonl"
    file.write_bytes(jsonl(*lines))
    return file


async def test_run_does_it_all(gateway: InProcessGateway, tmp_path: Path) -> None:
    status, out, _ = await sluice(gateway, "run", written(tmp_path, *map(line, range(5))), tmp_path / "out.jsonl")
    assert status == 0
    assert "completed  /v1/chat/completions  5 of 5 lines, 0.005 USD" in out
    ids = {json.loads(each)["custom_id"] for each in (tmp_path / "out.jsonl").read_text().splitlines()}
    assert ids == {f"line-{number}" for number in range(5)}
    assert sorted(one.name for one in tmp_path.glob("out*")) == ["out.jsonl"]


async def test_run_writes_failed_lines_beside_the_output_and_exits_with_1(
    gateway: InProcessGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    wrong = replies.error(400, "no", kind="invalid_request_error")
    upstream.always(lambda call: wrong if b"ping 1" in call.body else replies.ordinary(call))
    status, out, _ = await sluice(gateway, "run", written(tmp_path, line(1), line(2)), tmp_path / "out.jsonl")
    assert status == 1
    assert "1 of 2 lines, 1 failed" in out
    assert json.loads((tmp_path / "out.jsonl").read_text())["custom_id"] == "line-2"
    assert json.loads((tmp_path / "out.jsonl.errors").read_text())["custom_id"] == "line-1"


async def test_submit_status_result_and_cancel(gateway: InProcessGateway, tmp_path: Path) -> None:
    _, id, _ = await sluice(gateway, "submit", written(tmp_path, line(1)))
    id = id.strip()
    assert id.startswith("batch_")
    status, out, _ = await sluice(gateway, "status", id, "--wait")
    assert (status, out.split()[:2]) == (0, [id, "completed"])
    assert id in (await sluice(gateway, "status"))[1]
    status, out, _ = await sluice(gateway, "result", id)
    assert (status, json.loads(out)["custom_id"]) == (0, "line-1")
    status, _, err = await sluice(gateway, "result", id, "--errors")
    assert (status, err) == (1, f"sluice batch: {id} has no error file\n")
    status, _, err = await sluice(gateway, "cancel", id)
    assert (status, "cannot be cancelled" in err) == (1, True)


async def test_a_refused_file_shows_its_lines(gateway: InProcessGateway, tmp_path: Path) -> None:
    status, out, err = await sluice(gateway, "submit", written(tmp_path, line(1), b"{", line(1)), "--wait")
    assert (status, "failed" in out) == (1, True)
    assert [each.split(":")[0].strip() for each in err.splitlines()] == ["line 2", "line 3"]


async def test_mistakes_are_one_line(gateway: InProcessGateway, tmp_path: Path) -> None:
    status, _, err = await sluice(gateway, "submit", written(tmp_path, b"no json"))
    assert (status, err.count("\n")) == (2, 1)
    status, _, err = await sluice(gateway, "status", "batch_nope")
    assert (status, err) == (1, "sluice batch: No such Batch object: batch_nope\n")
    await gateway.stop()
    status, _, err = await sluice(gateway, "status")
    assert (status, err.count("\n"), "does not answer" in err) == (1, 1, True)


def test_the_pace() -> None:
    batch = BatchView("b", "in_progress", request_counts={"total": 100, "completed": 30, "failed": 10}, cost_usd="0.5")
    assert pace(batch, 10.0, 2_500, 20) == "250 tokens/s, 0.5 USD, 30 s left"
    assert pace(BatchView("b", "validating"), 0.0, 0, 0) == ""
    assert [duration(seconds) for seconds in (0.4, 61, 7500)] == ["0 s", "1 min 01 s", "2 h 05 min"]
