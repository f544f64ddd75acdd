"""The folders for the engine, its models and logs, and the lock for preparing them."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from backend.errors import Problem
from backend.progress import Progress
from backend.signals import StopSignals

PACKAGE = Path(__file__).resolve().parent
_LOG_AGE_S = 7 * 86400


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's cache folder for Sluice: `$XDG_CACHE_HOME/sluice`, else `~/.cache/sluice`."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "sluice"


def engine_venv(cache: Path, package: Path = PACKAGE) -> Path:
    """The folder of the engine's environment: beside the code in a checkout, else in the cache folder."""
    root = package.parent
    return root / ".venv-engine" if (root / "pyproject.toml").is_file() else cache / "venv-engine"


def make_folder(folder: Path) -> Path:
    """Create `folder` with its parents and return it; `Problem` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(f"cannot create the folder {folder}: {error.strerror}") from error
    return folder


def remove_old_logs(logs: Path, now: float) -> None:
    """Remove logs older than a week (`now` is Unix time), because every port ever used leaves some."""
    for log in logs.glob("*.log"):
        if log.stat().st_mtime < now - _LOG_AGE_S:
            log.unlink(missing_ok=True)


@contextmanager
def only_one(cache: Path, progress: Progress, signals: StopSignals) -> Iterator[None]:
    """Hold the lock on preparing; shows progress while another process holds it."""
    with (make_folder(cache) / "prepare.lock").open("w") as file:
        if not _locked(file):
            progress.begin("Waiting for another process that prepares the engine")
            try:
                while not _locked(file):
                    progress.update("")
                    signals.wait(0.2)
            finally:
                progress.clear()
            progress.done()
        yield


def _locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
