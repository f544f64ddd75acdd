"""The file of calls answered by both tiers, for `sluice calibrate`: JSON lines."""

import asyncio
import fcntl
import os
import re
import stat
from typing import Any, Final, NamedTuple

import msgspec

from gateway.telemetry.logging import logger

LONGEST: Final = 256 * 1024
"""Size limit of a recorded request, and of each answer, in bytes."""

_COMPARED: Final = 16_000
"""Number of characters of each answer that are compared."""

MAX_BYTES: Final = 1024**3
"""Size limit of the file."""

_WORD: Final = re.compile(r"\w+")
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Pair(NamedTuple):
    """The texts of both answers, and whether each is doubtful."""

    weak: str
    strong: str
    weak_doubtful: bool
    strong_doubtful: bool


def line(body: bytes, pair: Pair) -> bytes | None:
    """Return the request with both answers and guessed labels as a JSON line; None if it cannot be encoded.

    A doubtful answer counts as wrong. Otherwise the strong answer counts as right, and the cheap one is rated
    by the F1 of the words in both, at their start if they are long.
    """
    try:
        request = _decode(body)
        marks = {
            "weak_ok": 0.0 if pair.weak_doubtful else round(_agreement(pair.weak, pair.strong), 3),
            "strong_ok": float(not pair.strong_doubtful),
            "guessed": True,
            "weak": pair.weak,
            "strong": pair.strong,
        }
        return msgspec.json.encode(request | marks) + b"\n"
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _agreement(weak: str, strong: str) -> float:
    words = [set(_WORD.findall(text.casefold())) for text in (weak[:_COMPARED], strong[:_COMPARED])]
    total = sum(map(len, words))
    return 2 * len(words[0] & words[1]) / total if total else 1.0


class ShadowFile:
    """Appends lines. A new file is readable by its owner only; an existing one keeps its mode."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._failing = False

    async def add(self, data: bytes) -> None:
        """Write one line in a thread. The first error of a series is logged."""
        try:
            await asyncio.to_thread(self._append, data)
        except OSError as error:
            if not self._failing:
                logger.warning("cannot write the shadow file: %s", error.strerror or error)
            self._failing = True
        else:
            self._failing = False

    def _append(self, data: bytes) -> None:
        # Opening a pipe without a reader would block for ever, and with it the end of the process.
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("it is not a regular file")
            fcntl.flock(file, fcntl.LOCK_EX)  # one worker at a time appends, or truncates after an error
            size = os.fstat(file).st_size
            if size + len(data) > MAX_BYTES:
                raise OSError(f"it has reached the limit of {MAX_BYTES} bytes")
            try:
                while data:
                    data = data[os.write(file, data) :]
            except OSError:
                os.ftruncate(file, size)  # half a line would corrupt the next one too
                raise
        finally:
            os.close(file)
