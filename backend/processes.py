"""Child processes, each in its own session, so that everything it starts can be found and ended."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import NoReturn

from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backend.errors import Problem
from backend.paths import make_folder
from backend.progress import Progress, log_lines, log_step
from backend.signals import StopSignals

_POLL_S = 0.2
_KILLED_BOUND_S = 5.0
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b: |error: ", re.IGNORECASE)


@dataclass(frozen=True)
class Child:
    """A started process, the leader of its own session; `log` holds all its output."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self, grace_s: float, hurry: Callable[[], bool]) -> None:
        """Ask the leader to end; kill the rest of its session after `grace_s` seconds or when `hurry()`."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._wait_gone(grace_s, hurry)
        for pid in session_members(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._wait_gone(_KILLED_BOUND_S, lambda: False)

    def _wait_gone(self, bound_s: float, hurry: Callable[[], bool]) -> None:
        deadline = time.monotonic() + bound_s
        while self.process.poll() is None or session_members(self.process.pid):
            if time.monotonic() > deadline or hurry():
                return
            time.sleep(0.05)


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> Child:
    """Start `command` with its output in a new `log`; `env` is added to this process's environment."""
    make_folder(log.parent)
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                # So Ctrl-C reaches this process only, which ends the children in order.
                start_new_session=True,
            )
    except OSError as error:
        raise Problem(f"cannot start {name}: {error}") from error
    return Child(name, log, process)


def session_members(session: int) -> list[int]:
    """The living processes of a session, without zombies. Linux only: reads /proc."""
    members = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The command name may contain anything, even brackets; plain fields follow the last bracket.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session and fields[0] not in "ZX":
            members.append(int(folder.name))
    return members


def died(child: Child) -> Problem:
    """A `Problem` that says how a child ended: with its first error, or its last line, and its log."""
    lines = log_lines(child.log)
    # The first error is the cause; most later ones only report that another process has failed.
    quote = next((line for line in lines if _ERROR.match(line)), (lines or [""])[-1])
    status = child.process.returncode
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    saying = f', saying "{quote[:300]}"' if quote else ""
    return Problem(f"{child.name} {how}{saying} (log: {child.log})")


def finish(child: Child, progress: Progress, signals: StopSignals, label: str) -> None:
    """Wait for a child to end; `Problem` unless it succeeds. The child never outlives this call."""
    progress.begin(label)
    try:
        while child.process.poll() is None:
            progress.update(log_step(child.log))
            signals.wait(_POLL_S)
    finally:
        progress.clear()
        child.stop(5.0, lambda: signals.count > 1)
    if child.process.returncode:
        raise died(child)
    progress.done()


def wait_ready(
    children: Mapping[Child, Callable[[], bool]],
    progress: Progress,
    signals: StopSignals,
    label: str,
    bound_s: float,
) -> None:
    """Wait until every child's `ready()` has been true; `Problem` if one dies or after `bound_s` seconds."""
    waiting = dict(children)

    def all_ready() -> bool:
        for child, ready in children.items():
            if child.process.poll() is not None:
                raise died(child)
            if child in waiting and ready():
                del waiting[child]
        if waiting:
            progress.update(log_step(next(iter(waiting)).log))
        return not waiting

    def too_slow(_: RetryCallState) -> NoReturn:
        slow = next(iter(waiting))
        raise Problem(f"{slow.name} was not ready after {bound_s:.0f} s (log: {slow.log})")

    progress.begin(label)
    try:
        Retrying(
            retry=retry_if_result(not_),
            wait=wait_fixed(_POLL_S),
            stop=stop_after_delay(bound_s),
            sleep=signals.wait,  # raises at a signal
            retry_error_callback=too_slow,
        )(all_ready)
    finally:
        progress.clear()
    progress.done()
