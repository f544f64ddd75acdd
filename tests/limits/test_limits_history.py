"""What four processes admit through one Redis that is paused, killed or emptied, and when one of them dies.

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
from limits.history_process import PLACES, RPM, SPEED, now

ROOT = Path(__file__).resolve().parents[2]
LATE = 12.0
"""An admission is told of so late at most, in the limit's seconds: a fifth of a second of a busy machine."""


class Fleet:
    """Four processes and what they told."""

    def __init__(self, url: str) -> None:
        self.lines: list[list[str]] = []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
        command = [sys.executable, str(Path(__file__).with_name("history_process.py")), url]
        self.processes = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)
        ]
        self._readers = [threading.Thread(target=self._read, args=[one]) for one in self.processes]
        for one in self._readers:
            one.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.split())

    def admitted(self) -> list[float]:
        """When calls of the limited rate were admitted."""
        return sorted(float(line[1]) for line in list(self.lines) if line[0] == "rpm")

    def all_are_there(self) -> bool:
        """Whether each process has held a place."""
        return len({line[2].partition(":")[0] for line in list(self.lines) if line[0] == "in"}) == 4

    def stop(self) -> None:
        """Kills them."""
        for one in self.processes:
            one.kill()
        for one, reader in zip(self.processes, self._readers, strict=True):
            one.wait(10)
            reader.join(10)
            assert one.stdout is not None
            one.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as one:
        yield one


@pytest.fixture
def fleet(server: RedisServer) -> Iterator[Fleet]:
    """Four processes at work that have used up the burst."""
    one = Fleet(server.url)
    try:
        wait_for(lambda: len(one.admitted()) > RPM + 100 and one.all_are_there())
        yield one
    finally:
        one.stop()


def wait_for(true: "object", within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the processes do not get on"
        time.sleep(0.01)


def let_pass(minutes: float) -> float:
    """Lets so many minutes of the limit pass; gives the time then."""
    time.sleep(minutes * 60 / SPEED)
    return now()


def excess(times: list[float]) -> float:
    """The most that any window held beyond rate times its length."""
    worst, lowest = 0.0, float("inf")
    for number, at in enumerate(times):
        value = number - at * RPM / 60
        lowest = min(lowest, value)
        worst = max(worst, value - lowest + 1)
    return worst


def between(times: list[float], start: float, end: float) -> list[float]:
    return [at for at in times if start <= at < end]


def assert_saturated(times: list[float], start: float, end: float) -> None:
    """Between 90 and 100 % of the limit a minute, give or take what is told of late."""
    expected = (end - start) * RPM / 60
    late = LATE * RPM / 60
    assert 0.9 * expected - late <= len(between(times, start, end)) <= expected + late


def most_inside(lines: list[list[str]]) -> int:
    """The most places that were held at once."""
    steps = sorted((float(line[1]), line[0]) for line in lines if line[0] in ("in", "out"))
    return max(itertools.accumulate(1 if word == "in" else -1 for _, word in steps), default=0)


def test_a_redis_that_is_well_is_exact(fleet: Fleet):
    start = now()
    end = let_pass(3)
    times = fleet.admitted()
    assert excess(times) <= RPM + LATE * RPM / 60
    assert_saturated(times, start, end)
    assert most_inside(list(fleet.lines)) <= PLACES


@pytest.mark.parametrize("nemesis", ["pause", "kill", "flush"])
def test_a_redis_in_trouble_bounds_what_is_admitted(fleet: Fleet, server: RedisServer, nemesis: str):
    """Bound: what drains of the limit between the first and the last process that notices the recovery."""
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


def test_the_places_of_a_killed_process_come_back(fleet: Fleet):
    """After its lease of half a minute all places are used again, by the three that live."""
    fleet.processes[0].kill()
    fleet.processes[0].wait(10)
    let_pass(1)
    dead = {line[2] for line in list(fleet.lines) if line[0] == "in"} - {
        line[2] for line in list(fleet.lines) if line[0] == "out"
    }
    begin = now()
    let_pass(1)
    recent = [line for line in list(fleet.lines) if line[0] in ("in", "out") and float(line[1]) > begin]
    assert most_inside([line for line in recent if line[2] not in dead]) >= PLACES - 1
    assert most_inside(recent) <= PLACES
