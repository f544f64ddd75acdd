"""Reads and checks the lines of a batch's input file, with errors that name the line, from 1."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from gateway.batch_jobs.records import InputError

MOST_ERRORS: Final = 100
"""Errors that a refused batch lists."""
_LONGEST_ID: Final = 512  # characters of a custom_id
_TASK_LINES: Final = 64
_TASK_BYTES: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


class BatchLine(Struct, frozen=True, gc=False):
    """One request: its line number, the id that its result will carry, and its body, byte for byte."""

    number: int
    custom_id: str
    model: str
    body: bytes


class TaskRange(Struct, frozen=True, gc=False, array_like=True):
    """Some lines that are claimed together: bytes `start` to `end` of the input, from line `first` on."""

    start: int
    end: int
    first: int


class _Line(Struct, gc=False):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: Raw = Raw(b"")


class _Body(Struct, gc=False):
    model: Any = None
    stream: Any = None


_LINE: Final = msgspec.json.Decoder(_Line)
_BODY: Final = msgspec.json.Decoder(_Body)


class LineSplitter:
    """Splits pieces of a file into lines, each with the position of its first byte."""

    def __init__(self, start: int = 0) -> None:
        self._at = start
        self._rest = b""

    @property
    def held(self) -> int:
        """Bytes of the line under way."""
        return len(self._rest)

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """The lines that this piece completes, without their ends."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield self._at, line
            self._at += len(line) + 1

    def end(self) -> Iterator[tuple[int, bytes]]:
        """The last line, if the file does not end with a line's end."""
        if self._rest:
            yield self._at, self._rest
            self._at += len(self._rest)
            self._rest = b""

    @property
    def position(self) -> int:
        """Where the next line begins."""
        return self._at


class InputCheck:
    """Checks a whole input file, piece by piece, and divides it into tasks.

    `may_use` returns the error code and the sentence about a model that the key cannot have, else None.
    """

    def __init__(
        self,
        endpoint: str,
        max_lines: int,
        max_line: int,
        may_use: Callable[[str], tuple[str, str] | None],
    ) -> None:
        """`max_line` is the longest line in bytes."""
        self._endpoint = endpoint
        self._max_lines = max_lines
        self._max_line = max_line
        self._may_use = may_use
        self._lines = LineSplitter()
        self._number = 0
        self._seen: set[bytes] = set()
        self._models: dict[str, tuple[str, str] | None] = {}
        self._task: list[int] = []  # start, end, first line and lines of the task under way
        self.tasks: list[TaskRange] = []
        self.errors: list[InputError] = []
        self.total = 0

    @property
    def model(self) -> str:
        """The model of all lines; empty if they differ."""
        return next(iter(self._models)) if len(self._models) == 1 else ""

    def feed(self, piece: bytes) -> None:
        """Check the lines that this piece completes."""
        for start, line in self._lines.feed(piece):
            self._take(start, line)
        if self._lines.held > self._max_line:
            self._refuse("invalid_json_line", f"This line is longer than {self._max_line} bytes.", self._number + 1)
            self._lines = LineSplitter(self._lines.position)

    def end(self) -> None:
        """The file has ended."""
        for start, line in self._lines.end():
            self._take(start, line)
        self._close_task()
        if not self.total and not self.errors:
            self.errors.append(InputError("empty_file", "The input file has no lines.", None, "input_file_id"))
        if self.total > self._max_lines:
            message = f"The input file has {self.total} lines; a batch may have {self._max_lines}."
            self.errors.append(InputError("too_many_lines", message, None, "input_file_id"))

    def _take(self, start: int, line: bytes) -> None:
        self._number += 1
        end = start + len(line) + 1
        if self._number == 1:
            line = line.removeprefix(_BOM)
        if not line.strip():
            return
        self.total += 1
        self._add(start, end)
        if len(self.errors) < MOST_ERRORS:
            for code, message, param in self._problems(line):
                self._refuse(code, message, self._number, param)

    def _add(self, start: int, end: int) -> None:
        if self._task and (self._task[3] >= _TASK_LINES or end - self._task[0] > _TASK_BYTES):
            self._close_task()
        if not self._task:
            self._task = [start, end, self._number, 0]
        self._task[1] = end
        self._task[3] += 1

    def _close_task(self) -> None:
        if self._task:
            self.tasks.append(TaskRange(*self._task[:3]))
            self._task = []

    def _refuse(self, code: str, message: str, line: int, param: str | None = None) -> None:
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(InputError(code, message, line, param))

    def _problems(self, line: bytes) -> Iterator[tuple[str, str, str | None]]:
        try:
            read = _LINE.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            yield "invalid_json_line", f"This line is not a JSON object: {error}.", None
            return
        if not isinstance(read.custom_id, str) or not 0 < len(read.custom_id) <= _LONGEST_ID:
            message = f"`custom_id` must be a text of 1 to {_LONGEST_ID} characters."
            yield "invalid_custom_id", message, "custom_id"
        else:
            # A digest, so that memory does not grow with the length of the ids.
            digest = hashlib.blake2b(read.custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if digest in self._seen:
                message = f"The custom_id `{read.custom_id[:100]}` appears in an earlier line too."
                yield "duplicate_custom_id", message, "custom_id"
            self._seen.add(digest)
        if read.method != "POST":
            yield "invalid_method", '`method` must be "POST".', "method"
        if read.url != self._endpoint:
            yield "invalid_url", f"`url` must be the batch's endpoint, `{self._endpoint}`.", "url"
        yield from self._body_problems(bytes(read.body))

    def _body_problems(self, body: bytes) -> Iterator[tuple[str, str, str | None]]:
        if not body.startswith(b"{"):
            yield "invalid_request", "`body` must be a JSON object, the request itself.", "body"
            return
        fields = _BODY.decode(body)
        if not isinstance(fields.model, str) or not fields.model:
            yield "invalid_request", "`body.model` must be the name of a model.", "body.model"
        elif (refused := self._refused(fields.model)) is not None:
            yield refused[0], refused[1], "body.model"
        if fields.stream not in (None, False):
            yield "invalid_request", "A batch answers whole; remove `stream`.", "body.stream"

    def _refused(self, model: str) -> tuple[str, str] | None:
        if model not in self._models:
            self._models[model] = self._may_use(model)
        return self._models[model]


def lines_of(task: TaskRange, content: bytes) -> Iterator[BatchLine]:
    """The requests of a task's bytes, which `InputCheck` has accepted."""
    number = task.first - 1
    for line in content.removeprefix(_BOM).split(b"\n"):
        number += 1
        if line.strip():
            read = _LINE.decode(line)
            body = bytes(read.body)
            yield BatchLine(number, read.custom_id, _BODY.decode(body).model, body)
