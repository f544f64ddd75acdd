"""What four processes admit through a Redis that is paused, killed or emptied, and when a process dies.

Their time runs 60 times as fast as the machine's, so that a minute of a limit is a second.
"""

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.redis_server import RedisServer
from limits.history_process import RPM, SLOTS, SPEED, now

ROOT = Path(__file__).resolve().parents[2]
LATE = 12.0
"""Longest delay of a printed admission, in the limit's seconds: a fifth of a second on a busy machine."""


class Fleet:
    """Four processes and the lines they printed."""

    def __init__(self, url: str) -> None:
        self.lines: list[list[str]] = []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        command = [sys.executable, str(Path(__file__).with_name("history_process.py")), url]
        self.processes = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)
        ]
        self._readers = [threading.Thread(target=self._read, args=[process]) for process in self.processes]
        for reader in self._readers:
            reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.split())

    def admitted(self) -> list[float]:
        """When calls of the rate limit were admitted."""
        return sorted(float(line[1]) for line in list(self.lines) if line[0] == "rpm")

    def all_are_there(self) -> bool:
        """Whether each process has held a slot."""
        return len({line[2].partition(":")[0] for line in list(self.lines) if line[0] == "in"}) == 4

    def stop(self) -> None:
        """Kill the processes."""
        for process in self.processes:
            process.kill()
        for process, reader in zip(self.processes, self._readers, strict=True):
            process.wait(10)
            reader.join(10)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as running:
        yield running


@pytest.fixture
def fleet(server: RedisServer) -> Iterator[Fleet]:
    """Four running processes that have used up the burst."""
    running = Fleet(server.url)
    try:
        wait_for(lambda: len(running.admitted()) > RPM + 100 and running.all_are_there())
        yield running
    finally:
        running.stop()


def wait_for(true: "object", within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the processes do not get on"
        time.sleep(0.01)


def let_pass(minutes: float) -> float:
    """Let `minutes` of the limit pass and return the time then."""
    time.sleep(minutes * 60 / SPEED)
    return now()


def excess(times: list[float]) -> float:
    """The most calls that any window held beyond rate times its length."""
    worst, lowest = 0.0, float("inf")
    for number, at in enumerate(times):
        value = number - at * RPM / 60
        lowest = min(lowest, value)
        worst = max(worst, value - lowest + 1)
    return worst


def between(times: list[float], start: float, end: float) -> list[float]:
    return [at for at in times if start <= at < end]


def assert_saturated(times: list[float], start: float, end: float) -> None:
    """Between 90 and 100 % of the limit a minute, allowing for late lines."""
    expected = (end - start) * RPM / 60
    late = LATE * RPM / 60
    assert 0.9 * expected - late <= len(between(times, start, end)) <= expected + late


def most_inside(lines: list[list[str]]) -> int:
    """The most slots held at once."""
    steps = sorted((float(line[1]), line[0]) for line in lines if line[0] in ("in", "out"))
    return max(itertools.accumulate(1 if word == "in" else -1 for _, word in steps), default=0)


def test_with_a_healthy_redis_the_limits_are_exact(fleet: Fleet):
    start = now()
    end = let_pass(3)
    times = fleet.admitted()
    assert excess(times) <= RPM + LATE * RPM / 60
    assert_saturated(times, start, end)
    assert most_inside(list(fleet.lines)) <= SLOTS


@pytest.mark.parametrize("nemesis", ["pause", "kill", "flush"])
def test_with_a_failing_redis_the_excess_is_bounded(fleet: Fleet, server: RedisServer, nemesis: str):
    """The bound is what drains between the first and the last process that notices the recovery."""
    if nemesis == "flush":
        for _ in range(5):
            server.command("FLUSHALL")
            let_pass(0.2)
    elif nemesis == "pause":
        server.pause()
        let_pass(1)
        server.resume()
    else:
        server.kill()
        let_pass(1)
        server.start()
    after = let_pass(2)
    end = let_pass(2)
    times = fleet.admitted()
    assert excess(times) <= RPM + (LATE + 0.3 * SPEED) * RPM / 60
    assert excess(between(times, after, end)) <= LATE * RPM / 60
    assert_saturated(times, after, end)


def test_the_slots_of_a_killed_process_come_back(fleet: Fleet):
    """After its lease of half a minute the three living processes use all slots again."""
    fleet.processes[0].kill()
    fleet.processes[0].wait(10)
    let_pass(1)
    dead = {line[2] for line in list(fleet.lines) if line[0] == "in"} - {
        line[2] for line in list(fleet.lines) if line[0] == "out"
    }
    begin = now()
    let_pass(1)
    recent = [line for line in list(fleet.lines) if line[0] in ("in", "out") and float(line[1]) > begin]
    assert most_inside([line for line in recent if line[2] not in dead]) >= SLOTS - 1
    assert most_inside(recent) <= SLOTS
