"""Weights proposed from shadow calls: written beside the file, logged, and never put in service."""

import asyncio
import json
import logging
from pathlib import Path
from random import Random

import pytest

from gateway.assembly import proposals
from gateway.assembly.proposals import ProposingFile
from gateway.routing.complexity.weights import parse


def lines(count: int, telling: bool) -> list[bytes]:
    """Calls in which one word says which model is right, or none does."""
    rng = Random(3)
    made = []
    for number in range(count):
        gains = rng.random() < 0.5
        word = "violet" if gains and telling else "apple"
        prompt = f"{word} stone paper {number}"
        made.append(json.dumps({"prompt": prompt, "weak_ok": not gains, "strong_ok": True}).encode() + b"\n")
    return made


async def recorded(file: ProposingFile, count: int, telling: bool = True) -> None:
    for line in lines(count, telling):
        await file.add(line)
    task = file._task
    if task is not None:
        await asyncio.wait_for(asyncio.shield(task), 60)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(proposals, "AFTER", (200,))
    caplog.set_level(logging.INFO, "sluice")


async def test_better_weights_are_proposed_and_not_put_in_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ProposingFile(str(tmp_path / "shadow.jsonl"), "auto", None)
    await recorded(file, 199)
    assert file._task is None
    await recorded(file, 1)
    assert "propose weights; to use them set complexity.weights to" in caplog.text
    assert file.proposal == tmp_path / "shadow.jsonl.auto.weights.json"
    assert "violet" in parse(file.proposal.read_bytes()).grams
    await file.close()


async def test_without_better_ones_it_only_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = ProposingFile(str(tmp_path / "shadow.jsonl"), "auto", None)
    await recorded(file, 200, telling=False)
    assert "propose no other weights" in caplog.text
    assert not file.proposal.exists()


async def test_a_problem_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = ProposingFile(str(tmp_path / "shadow.jsonl"), "auto", str(tmp_path / "gone.json"))
    await recorded(file, 200)
    assert "gone.json" in caplog.text
    assert not file.proposal.exists()


async def test_closing_ends_a_calibration(tmp_path: Path) -> None:
    file = ProposingFile(str(tmp_path / "shadow.jsonl"), "auto", None)
    for line in lines(200, telling=True):
        await file.add(line)
    assert file._task is not None
    await asyncio.sleep(0.05)
    await file.close()
    assert file._task.done()
    assert not file.proposal.exists()
