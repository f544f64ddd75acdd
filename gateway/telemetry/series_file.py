"""A worker's series in a file that its parent reads: they survive the worker.

The file is mapped in segments of 64 KiB. Each is reserved on the disk before it is mapped, because a write to a
mapped page without space kills the process. A segment begins with the number of bytes in use; then come records: size,
length of the key, number of cells, the key (JSON: the family's name and the label values), the cells. A record with
no cells is free.
"""

import os
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from typing import Final

import msgspec

from gateway.telemetry.series import Cells, Labels

SEGMENT: Final = 64 * 1024
_MAGIC: Final = 0x51CE0001
_HEAD: Final = struct.Struct("<II")  # magic, bytes in use
_RECORD: Final = struct.Struct("<IHH")  # size of the record, length of the key, cells
_decode_key = msgspec.json.Decoder(list[str]).decode

SeriesRow = tuple[str, Labels, tuple[float, ...]]
"""Name of the family, label values, cells."""


class BrokenSeriesFile(ValueError):
    """The file was not written by `SeriesFile`, or has been damaged since."""


class SeriesFile:
    """`SeriesStore` in a file. Series that find no space there are kept in memory, in `in_memory`."""

    def __init__(self, path: Path, on_full: Callable[[OSError], None]) -> None:
        """`on_full` is called at the first series without space."""
        self.in_memory: dict[tuple[str, Labels], list[float]] = {}
        self._path = path
        self._on_full = on_full
        self._said = False
        self._file = -1
        self._segments: list[mmap] = []
        self._used = SEGMENT  # of the last segment
        self._places: dict[tuple[str, Labels], tuple[mmap, int]] = {}
        self._free: defaultdict[int, list[tuple[mmap, int]]] = defaultdict(list)

    def create(self, family: str, labels: Labels, size: int) -> Cells:
        """A new series of `size` zeros."""
        key = msgspec.json.encode([family, *labels])
        padded = -(-len(key) // 8) * 8
        record = _RECORD.size + padded + 8 * size
        try:
            segment, at = self._place(record)
        except OSError as error:
            if not self._said:
                self._said = True
                self._on_full(error)
            cells = self.in_memory[family, labels] = [0.0] * size
            return cells
        first = at + _RECORD.size + padded
        segment[at + _RECORD.size : first] = key.ljust(padded)
        segment[first : at + record] = bytes(8 * size)
        segment[at : at + _RECORD.size] = _RECORD.pack(record, len(key), size)  # last: a reader may come any time
        if segment is self._segments[-1] and at == self._used:
            self._used += record
            segment[: _HEAD.size] = _HEAD.pack(_MAGIC, self._used)
        self._places[family, labels] = segment, at
        return memoryview(segment)[first : at + record].cast("d")

    def release(self, family: str, labels: Labels) -> None:
        """Free the record of a series, for another one of its size."""
        if self.in_memory.pop((family, labels), None) is not None:
            return
        segment, at = self._places.pop((family, labels))
        size, key, _ = _RECORD.unpack_from(segment, at)
        segment[at : at + _RECORD.size] = _RECORD.pack(size, key, 0)
        self._free[size].append((segment, at))

    def _place(self, size: int) -> tuple[mmap, int]:
        """Where a record of `size` bytes can be written. OSError if there is no space."""
        if free := self._free[size]:
            return free.pop()
        if self._used + size > SEGMENT:
            if size > SEGMENT - _HEAD.size:
                raise OSError("a series larger than a segment")
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            begin = len(self._segments) * SEGMENT
            os.posix_fallocate(self._file, begin, SEGMENT)
            self._segments.append(mmap(self._file, SEGMENT, offset=begin))
            self._used = _HEAD.size
            self._segments[-1][: _HEAD.size] = _HEAD.pack(_MAGIC, self._used)
        return self._segments[-1], self._used


def read_series(path: Path) -> Iterator[SeriesRow]:
    """The series of a file, also while its worker writes. BrokenSeriesFile; OSError if it cannot be read."""
    with path.open("rb") as file:
        while data := file.read(SEGMENT):
            try:
                yield from _rows(data)
            except (struct.error, msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
                raise BrokenSeriesFile(str(error)) from None


def _rows(data: bytes) -> Iterator[SeriesRow]:
    magic, used = _HEAD.unpack_from(data)
    if not magic and not used:  # reserved and not begun
        return
    if magic != _MAGIC or used > len(data):
        raise BrokenSeriesFile("no segment begins here")
    at = _HEAD.size
    while at < used:
        size, key_length, cells = _RECORD.unpack_from(data, at)
        key, first = at + _RECORD.size, at + size - 8 * cells
        if size < _RECORD.size or at + size > used or key + key_length > first:
            raise BrokenSeriesFile("a record is out of bounds")
        if cells:
            name, *labels = _decode_key(data[key : key + key_length])
            yield name, tuple(labels), struct.unpack_from(f"{cells}d", data, first)
        at += size
