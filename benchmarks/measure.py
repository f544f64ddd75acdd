"""CPU time and memory of a process tree, read from /proc (Linux only), and pinning to a core."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """A process started inside runs on that core, with all its threads: affinity is inherited."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _stat(pid: str) -> list[str]:
    # The second field, the command's name, may hold spaces: count from the bracket that closes it.
    return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(_stat(entry)[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
    found = [root]
    for pid in found:  # grows while it is walked: children of children
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of the processes, and of their children that have ended."""
    return sum(sum(map(int, _stat(str(pid))[11:15])) for pid in pids) * TICK


def memory_bytes(pids: list[int]) -> int:
    """Proportional set size: memory that several processes share is counted once."""
    total = 0
    for pid in pids:
        try:
            lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
        except ProcessLookupError:
            continue  # it has ended and waits for its parent
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def core_seconds(core: int) -> float:
    """Time this core was busy, including interrupts and time stolen by its host."""
    lines = Path("/proc/stat").read_text().splitlines()
    fields = next(line.split() for line in lines if line.startswith(f"cpu{core} "))
    return sum(int(fields[i]) for i in (1, 2, 3, 6, 7, 8)) * TICK


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment, in seconds and bytes."""

    cpu: float
    core: float
    memory: int


def read(root: int, core: int) -> Reading:
    """Read the counters of a process tree and of its core."""
    pids = tree(root)
    return Reading(cpu_seconds(pids), core_seconds(core), memory_bytes(pids))


def machine() -> str:
    """The machine and versions, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    packages = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop"))
    system = f"Linux {platform.release()}, Python {platform.python_version()}, {packages}"
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, {system}"
