"""Checks, before anything is installed, that this machine can run the engine."""

import ctypes
import importlib.util
import shutil
from pathlib import Path

from backend.errors import CannotRunError, Problem

GB = 1_000_000_000


def require_machine(system: str, machine: str, libc: tuple[str, str], python: tuple[int, int]) -> None:
    """Raise `CannotRunError` unless there is a build of vLLM for this machine."""
    if (system, machine) != ("Linux", "x86_64"):
        raise CannotRunError(f"it needs Linux on x86-64, and this is {system} on {machine}")
    name, version = libc
    if name != "glibc" or [int(part) for part in version.split(".")[:2]] < [2, 28]:
        raise CannotRunError(f"it needs glibc 2.28 or newer, and this is {name or 'another C library'} {version}")
    if not (3, 11) <= python < (3, 15):
        raise CannotRunError(f"it needs Python 3.11 to 3.14, and this is {python[0]}.{python[1]}")


def require_disk(folder: Path, needed: int) -> None:
    """Raise `CannotRunError` when `needed` bytes are not free where `folder` is or will be."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise CannotRunError(
            f"it needs {needed / GB:.1f} GB of free disk for {folder}, and {free / GB:.1f} GB are free"
        )


def require_system_packages() -> None:
    """Raise a `Problem` with the one command that installs what only root can install."""
    missing = []
    if importlib.util.find_spec("ensurepip") is None:
        missing.append("python3-venv")
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        missing.append("libnuma1")
    if missing:
        raise Problem(f"system packages are missing; install them with: apt-get install {' '.join(missing)}")
