"""The file of calls that both tiers have answered, for `sluice calibrate`: one JSON object a line."""

import asyncio
import fcntl
import os
import re
import stat
from typing import Any, Final, NamedTuple

import msgspec

from gateway.telemetry.logging import logger

LONGEST: Final = 256 * 1024
"""Bytes of a request that is written down, and of either answer."""

_COMPARED: Final = 16_000
"""Characters of each answer whose words are compared."""

MOST: Final = 1024**3
"""Bytes that the file may have."""

_WORD: Final = re.compile(r"\w+")
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Pair(NamedTuple):
    """Both answers' texts, and whether either one is doubtful."""

    weak: str
    strong: str
    weak_doubtful: bool
    strong_doubtful: bool


def line(body: bytes, pair: Pair) -> bytes | None:
    """The request with both answers and guessed marks; None where it cannot be written down.

    A doubtful answer is wrong; else the strong one is taken for right, and the cheap one for as right as the
    words that both have in common (their F1), at their beginnings if they are long.
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


def _agreement(one: str, other: str) -> float:
    words = [set(_WORD.findall(text.casefold())) for text in (one[:_COMPARED], other[:_COMPARED])]
    total = sum(map(len, words))
    return 2 * len(words[0] & words[1]) / total if total else 1.0


class ShadowFile:
    """Appends lines. It is made for its owner's eyes only; a file that is there keeps its mode."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._troubled = False

    async def add(self, written: bytes) -> None:
        """Write one line, off the loop. What goes wrong is logged once, until it goes well again."""
        try:
            await asyncio.to_thread(self._append, written)
        except OSError as error:
            if not self._troubled:
                logger.warning("cannot write the shadow file: %s", error.strerror or error)
            self._troubled = True
        else:
            self._troubled = False

    def _append(self, written: bytes) -> None:
        # Of a pipe that nobody reads, opening would never return: neither would the end of this process.
        file = os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600
        )
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError("it is no ordinary file")
            fcntl.flock(file, fcntl.LOCK_EX)  # of several workers one appends, or takes back what it could
            size = os.fstat(file).st_size
            if size + len(written) > MOST:
                raise OSError(f"it has {MOST} bytes, which is the most")
            try:
                while written:
                    written = written[os.write(file, written) :]
            except OSError:
                os.ftruncate(file, size)  # half a line would spoil the next one too
                raise
        finally:
            os.close(file)
