"""Series in a worker's file: small, readable by its parent, and never a reason to die."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.telemetry.series import Counter, Histogram
from gateway.telemetry.series_file import SEGMENT, BrokenSeriesFile, SeriesFile, read_series


class Full:
    """A file system without space after some segments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, segments: int) -> None:
        self._left = segments
        self._allocate = os.posix_fallocate
        monkeypatch.setattr("os.posix_fallocate", self)

    def __call__(self, file: int, offset: int, size: int) -> None:
        if not self._left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._left -= 1
        self._allocate(file, offset, size)


@pytest.fixture
def said() -> list[OSError]:
    """What the file said about space."""
    return []


@pytest.fixture
def file(tmp_path: Path, said: list[OSError]) -> SeriesFile:
    return SeriesFile(tmp_path / "w.series", said.append)


def read(tmp_path: Path) -> dict[tuple[str, ...], tuple[float, ...]]:
    """The file as its reader sees it."""
    return {(name, *labels): cells for name, labels, cells in read_series(tmp_path / "w.series")}


def test_what_is_counted_is_read(file: SeriesFile, tmp_path: Path) -> None:
    counter, histogram = Counter("c", "", ["a"], file), Histogram("h", "", (1, 2), ["a"], file)
    for value in (0.5, 1.5, 1.5, 9):
        counter.adder("x")(value)
        histogram.observer("é\n")(value)
    assert read(tmp_path) == {("c", "x"): (12.5,), ("h", "é\n"): (12.5, 1, 2, 1)}


def test_a_series_costs_bytes(file: SeriesFile, tmp_path: Path) -> None:
    counter = Counter("sluice_cost_usd", "", ["m", "u", "k"], file)
    for number in range(3000):
        counter.count("a-model", "an-upstream", f"key-{number}")
    counters = (tmp_path / "w.series").stat().st_size
    assert counters <= 3000 * 80 + SEGMENT
    histogram = Histogram("h", "", [*range(30)], ["m"], file)
    for number in range(1000):
        histogram.observer(f"model-{number}")(3)
    assert (tmp_path / "w.series").stat().st_size - counters <= 1000 * (32 * 8 + 32) + SEGMENT
    assert len(read(tmp_path)) == 4000


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60), st.booleans()), max_size=200))
def test_the_reader_sees_exactly_the_series_that_live(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("series")
    file = SeriesFile(folder / "w.series", lambda error: None)
    lives: dict[tuple[str, ...], tuple[float, ...]] = {}
    for number, (name, size, released) in enumerate(steps):
        label = "x" * 50 * name
        if ("f", label) in lives:
            if released:
                file.release("f", (label,))
                del lives["f", label]
            continue
        cells = file.create("f", (label,), size)
        assert [*cells] == [0.0] * size
        for at in range(size):
            cells[at] = number + at
        lives["f", label] = tuple(float(number + at) for at in range(size))
    assert read(folder) == lives if lives else True


def test_a_released_record_is_used_again(file: SeriesFile, tmp_path: Path) -> None:
    for turn in range(100):
        for number in range(400):
            file.create("f", (f"{turn:03}-{number:03}",), 20)[0] = 1
        assert len(read(tmp_path)) == 400
        for number in range(400):
            file.release("f", (f"{turn:03}-{number:03}",))
    assert (tmp_path / "w.series").stat().st_size == 2 * SEGMENT


@pytest.mark.parametrize("segments", [0, 1])
def test_without_space_it_counts_in_memory_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, file: SeriesFile, tmp_path: Path, said: list[OSError], segments: int
) -> None:
    Full(monkeypatch, segments)
    counter = Counter("c", "", ["a"], file)
    for number in range(3000):
        counter.count(f"{number}")
        counter.count(f"{number}")
    in_file = read(tmp_path)
    assert bool(in_file) is bool(segments)
    in_memory = {(name, *labels): tuple(cells) for (name, labels), cells in file.in_memory.items()}
    assert in_file | in_memory == {("c", f"{number}"): (2,) for number in range(3000)}
    assert [error.errno for error in said] == [errno.ENOSPC]


def test_space_that_comes_back_is_used(
    monkeypatch: pytest.MonkeyPatch, file: SeriesFile, tmp_path: Path, said: list[OSError]
) -> None:
    Full(monkeypatch, 0)
    file.create("f", ("first",), 1)
    monkeypatch.undo()
    file.create("f", ("second",), 1)
    file.release("f", ("first",))
    assert ([*read(tmp_path)], file.in_memory, len(said)) == ([("f", "second")], {}, 1)


def test_a_folder_that_is_gone_is_no_reason_to_die(tmp_path: Path, said: list[OSError]) -> None:
    file = SeriesFile(tmp_path / "none" / "w.series", said.append)
    Counter("c", "", ["a"], file).count("x")
    assert ([error.errno for error in said], [*file.in_memory.values()]) == ([errno.ENOENT], [[1.0]])


DAMAGES = {
    "cut": lambda data: data[:60],
    "two bytes": lambda data: data[:2],
    "overwritten": lambda data: data[:8] + b"\x7f" * (len(data) - 8),
    "zeros": lambda data: data[:8] + bytes(len(data) - 8),
    "another's": lambda data: b"\x40\0\0\0\0\0\0\0" + b"\x04\0\0\0nope" + b"\0" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_metr_03_a_damaged_file_is_noticed(file: SeriesFile, tmp_path: Path, damage: str) -> None:
    for number in range(100):
        file.create("f", (f"{number}",), 1)
    path = tmp_path / "damaged.series"
    path.write_bytes(DAMAGES[damage]((tmp_path / "w.series").read_bytes()))
    with pytest.raises(BrokenSeriesFile):
        list(read_series(path))
