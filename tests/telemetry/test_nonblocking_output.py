"""A log that nobody takes costs nobody anything but its lines."""

import fcntl
import os
import pty
import socket
from collections.abc import Iterator

import pytest

from gateway.telemetry.nonblocking_output import MAX_BUFFERED, NonBlockingStream, nonblocking_write

LINE = "x" * 99 + "\n"


class Sink:
    """Takes so many bytes and no more, unless it is in trouble."""

    def __init__(self) -> None:
        self.room = 0
        self.took = b""

    def __call__(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.took += taken
        return len(taken)


class Scene:
    """An output over a sink, and what it says of dropped lines."""

    def __init__(self) -> None:
        self.sink = Sink()
        self.told: list[int] = []
        self.counted = 0
        self.output = NonBlockingStream(self.sink, self.tell)
        self.output.count = self.count

    def tell(self, lines: int) -> None:
        self.told.append(lines)
        self.say(f"dropped {lines}\n")

    def count(self) -> None:
        self.counted += 1

    def say(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_cannot_be_written_is_kept_and_comes_first(scene: Scene):
    scene.say("one\n")
    scene.say("two\n")
    scene.sink.room = 100
    scene.say("three\n")
    assert scene.sink.took == b"one\ntwo\nthree\n"
    assert (scene.counted, scene.told) == (0, [])


def test_a_line_that_was_cut_is_ended_before_the_next_one(scene: Scene):
    scene.sink.room = 2
    scene.say("one\n")
    scene.say("two\n")
    assert scene.sink.took == b"on"
    scene.sink.room = 100
    scene.output.tick(0.0)
    assert scene.sink.took == b"one\ntwo\n"


def test_row_63_beyond_its_bound_lines_are_dropped_counted_and_told_of(scene: Scene):
    for _ in range(MAX_BUFFERED // 100 + 50):
        scene.say(LINE)
    lost = MAX_BUFFERED // 100 + 50 - MAX_BUFFERED // 100
    assert scene.counted == lost
    scene.sink.room = 10 * MAX_BUFFERED
    scene.say("later\n")
    whole = LINE.encode() * (MAX_BUFFERED // 100)
    assert scene.sink.took == whole + b"later\ndropped %d\n" % lost
    assert scene.told == [lost]


def test_room_that_has_come_back_is_used_before_a_line_is_dropped(scene: Scene):
    for _ in range(MAX_BUFFERED // 100):
        scene.say(LINE)
    scene.sink.room = 10 * MAX_BUFFERED
    scene.output.write(LINE)
    scene.output.flush()
    assert len(scene.sink.took) == (MAX_BUFFERED // 100 + 1) * 100
    assert scene.counted == 0


def test_a_line_larger_than_the_bound_is_still_a_line(scene: Scene):
    scene.sink.room = 10 * MAX_BUFFERED
    scene.say("y" * 2 * MAX_BUFFERED)
    assert len(scene.sink.took) == 2 * MAX_BUFFERED


def test_half_a_surrogate_is_written_all_the_same(scene: Scene):
    scene.sink.room = 100
    scene.say("a\ud800b\n")
    assert scene.sink.took == b"a\\ud800b\n"


# Descriptors.


@pytest.fixture(params=["pipe", "terminal", "socket"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Who reads, and the other end, which waits as usual."""
    if request.param == "pipe":
        both = os.pipe()
    elif request.param == "terminal":
        both = pty.openpty()
    else:
        one, other = socket.socketpair()
        both = one.detach(), other.detach()
    yield both
    for end in both:
        os.close(end)


def fill(descriptor: int, line: bytes) -> int:
    """Writes until there is no more room; gives the bytes."""
    write, written = nonblocking_write(descriptor), 0
    while written < 100_000_000:
        try:
            written += write(line)
        except BlockingIOError:
            break
    return written


@pytest.mark.parametrize("line", [LINE.encode(), b"z" * 100_000])
def test_row_63_nobody_reads_and_nobody_waits(ends: tuple[int, int], line: bytes):
    reader, writer = ends
    written = fill(writer, line)
    assert 1000 < written < 100_000_000
    assert os.get_blocking(writer)  # others write to the same one, and are used to wait
    assert os.read(reader, 100)


def test_a_pipe_takes_a_line_whole_or_not_at_all():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    line = b"w" * 3000
    assert fill(writer, line) == 3000
    os.close(writer)
    os.close(reader)


def test_a_reader_that_has_gone_is_no_error_of_anybody(scene: Scene):
    reader, writer = os.pipe()
    output = NonBlockingStream(nonblocking_write(writer), scene.tell)
    os.close(reader)
    output.write(LINE)
    output.flush()
    os.close(writer)


def test_without_the_name_of_a_descriptor_it_is_looked_at_before_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse(*_: object) -> int:
        raise PermissionError

    reader, writer = os.pipe()
    monkeypatch.setattr("gateway.telemetry.nonblocking_output.os.open", refuse)
    assert fill(writer, LINE.encode()) > 1000
    monkeypatch.undo()
    os.close(writer)
    os.close(reader)


def test_a_file_is_written_to_as_it_is(tmp_path):
    with (tmp_path / "log").open("ab") as file:
        nonblocking_write(file.fileno())(b"one\n")
        nonblocking_write(file.fileno())(b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
