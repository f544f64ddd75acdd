"""Runs `sluice up --embeddings` once, as a user would, for all tests that need the real engine."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_up import RunningUp

from backend import ports

ROOT = Path(__file__).parents[2]
READY_BOUND_S = 240


@pytest.fixture(scope="session")
def up() -> Iterator[RunningUp]:
    """The whole thing, ready; it is ended at the end, if a test has not done so."""
    used: list[int] = []
    for _ in range(3):
        used.append(ports.any_free("127.0.0.1", used))
    port, admin, engine_port = used
    command = [sys.executable, "-m", "gateway", "up", "--embeddings", "--port", str(port)]
    command += ["--admin-port", str(admin), "--engine-port", str(engine_port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        running = RunningUp(process, port, engine_port)
        try:
            _wait_until_ready(running)
            yield running
        finally:
            if process.poll() is None:
                running.interrupt()


def _wait_until_ready(running: RunningUp) -> None:
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert running.process.stdout is not None
        for line in running.process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + READY_BOUND_S
    while not running.printed or not running.printed[-1].startswith("Ctrl-C stops"):
        line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        assert line is not None, "`sluice up` ended early:\n" + "".join(running.printed)
        running.printed.append(line)
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    running.sessions = [int(pid) for pid in children.read_text().split()]
