"""The merge modes that experiments have found, in a small JSON file, so that a restart begins with them.

Nothing here ends serving: a file that is missing, unreadable or wrong counts as empty, and one that cannot be
written is reported once and then left alone.
"""

import contextlib
import os
import stat
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.batching.experiment import Learned
from gateway.telemetry.logging import logger

VERSION: Final = 1
_MAX_BYTES: Final = 1 << 20
_MAX_ENTRIES: Final = 4096


class Entry(msgspec.Struct, frozen=True):
    """What was found for one kind of calls. `servers` is a fingerprint of where they go, and how."""

    model: str
    endpoint: str
    max_output: int
    upstream: str
    servers: str
    found: Learned

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        """What the entry is about."""
        return self.model, self.endpoint, self.max_output, self.upstream, self.servers


class _File(msgspec.Struct):
    version: int
    merge_modes: list[Entry]


def decode(data: bytes) -> list[Entry]:
    """The entries of a file; none if it is not one of ours."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return file.merge_modes[:_MAX_ENTRIES] if file.version == VERSION else []


def encode(entries: list[Entry]) -> bytes:
    """The file with these entries."""
    return msgspec.json.format(msgspec.json.encode(_File(VERSION, entries[-_MAX_ENTRIES:])), indent=1) + b"\n"


class LearnedStore:
    """The file at `path`; None keeps nothing. Several processes may share it."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: Mapping[tuple[str, str, int, str, str], Learned] = {}
        self._saved: list[Entry] = []

    def load(self) -> None:
        """Read the file."""
        self._known = {entry.key: entry.found for entry in self._read()}

    def found(self, key: tuple[str, str, int, str, str]) -> Learned | None:
        """What an earlier run found for these calls."""
        return self._known.get(key)

    def save(self, entries: list[Entry]) -> None:
        """Write these entries, and keep those of others; in one step, so that no reader sees half a file."""
        if self._path is None or not entries or entries == self._saved:
            return
        mine = {entry.key for entry in entries}
        data = encode([entry for entry in self._read() if entry.key not in mine] + entries)
        beside = f"{self._path}.{os.getpid()}"
        try:
            with open(beside, "wb") as file:
                file.write(data)
            os.replace(beside, self._path)
            self._saved = entries
        except (OSError, ValueError) as error:
            logger.warning("%s: merge modes are not kept over restarts: %s", self._path, error)
            self._path = None
            with contextlib.suppress(OSError, ValueError):
                os.unlink(beside)

    def _read(self) -> list[Entry]:
        if self._path is None:
            return []
        try:
            opened = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return []
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return []
            return decode(os.read(opened, _MAX_BYTES))
        except OSError:
            return []
        finally:
            os.close(opened)
