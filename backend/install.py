"""Installs the engine into a separate environment: vLLM pins hundreds of packages, the gateway only a few.

`python -m backend.install` does only this and ends with status 3 on a machine that cannot run the engine.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backend import processes
from backend.errors import CannotRunError, Problem, Stopped
from backend.paths import PACKAGE, cache_folder, engine_venv, make_folder, only_one
from backend.preflight import GB, require_disk, require_machine, require_system_packages
from backend.progress import Progress
from backend.signals import StopSignals

CANNOT_RUN = 3
Step = Callable[[str, list[str]], None]


@dataclass(frozen=True)
class Flavour:
    """A build of the engine: its pinned list, its size on disk in bytes, and a separate torch version."""

    name: str
    packages: Path
    disk: int
    torch: str | None


CPU = Flavour("cpu", PACKAGE / "engine-cpu.txt", 4 * GB, "2.13.0")
CUDA = Flavour("cuda", PACKAGE / "engine-cuda.txt", 14 * GB, None)


def flavour() -> Flavour:
    """CUDA if `nvidia-smi` lists a GPU, else the CPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return CPU
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return CPU
    return CUDA if listed.returncode == 0 and "GPU 0" in listed.stdout else CPU


def installed(venv: Path, build: Flavour) -> bool:
    """Whether `venv` was installed from the present list of `build`."""
    stamp = venv / "sluice-installed"
    return (venv / "bin/python").exists() and stamp.is_file() and stamp.read_text() == _digest(build)


def ensure(cache: Path, build: Flavour, progress: Progress, signals: StopSignals) -> Path:
    """Install the engine if it is missing and return its environment's folder. The caller holds the lock.

    Raises `CannotRunError`, `Problem` or `Stopped`. After an interrupted installation the next call starts
    over; pip's download cache remains.
    """
    require_machine(platform.system(), platform.machine(), platform.libc_ver(), sys.version_info[:2])
    require_system_packages()
    venv = engine_venv(cache)
    if installed(venv, build):
        return venv
    require_disk(venv, build.disk)
    log = make_folder(cache / "logs") / "install.log"

    def step(label: str, command: list[str]) -> None:
        processes.finish(processes.start(label, command, log), progress, signals, label)

    step("Creating the engine's environment", [sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [
        str(venv / "bin/python"),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
    ]
    if build.torch:
        _install_cpu_torch(venv, pip, build.torch, step)
    label = f"Installing the engine (vLLM for {build.name.upper()}, {_count(build)} packages)"
    step(label, [*pip, "--require-hashes", "-r", str(build.packages)])
    (venv / "sluice-installed").write_text(_digest(build))
    return venv


def _install_cpu_torch(venv: Path, pip: list[str], version: str, step: Step) -> None:
    """Install torch's CPU build, which is not on PyPI; pip's configuration or uv knows where to find it.

    There is no hash to check: each version of Python has its own file.
    """
    label = "Installing PyTorch for CPU"
    try:
        step(label, [*pip, f"torch=={version}+cpu"])
    except Problem:
        step("Fetching uv, which knows where PyTorch's CPU build is", [*pip, "uv"])
        uv = [str(venv / "bin/uv"), "pip", "install", "--python", str(venv / "bin/python"), "--no-deps"]
        step(label, [*uv, "--torch-backend", "cpu", f"torch=={version}"])


def _count(build: Flavour) -> int:
    return sum("==" in line for line in build.packages.read_text().splitlines())


def _digest(build: Flavour) -> str:
    return hashlib.sha256(f"{build.name} {build.torch}\n".encode() + build.packages.read_bytes()).hexdigest()


def main() -> int:
    """Install the engine and return the exit status: 0 done, 1 failed, 3 unsupported, 130 interrupted."""
    cache = cache_folder()
    try:
        progress = Progress(sys.stdout)
        with StopSignals() as signals, only_one(cache, progress, signals):
            ensure(cache, flavour(), progress, signals)
    except CannotRunError as problem:
        print(f"The local engine cannot run here: {problem}.", file=sys.stderr)
        return CANNOT_RUN
    except Problem as problem:
        print(f"The engine could not be installed: {problem}", file=sys.stderr)
        return 1
    except Stopped:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
