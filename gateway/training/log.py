"""An operator's log of calls that both models answered: one JSON object a line.

A line is a request's body (`messages`, or `prompt`; what else a body holds may stand there too) with
`weak_ok` and `strong_ok`, true or false, or a number from 0 to 1.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.complexity.peek import peek
from gateway.training.rows import Row


class BadLine(Exception):
    """A line is not as the format says."""


class _Marks(Struct):
    weak_ok: bool | float
    strong_ok: bool | float


def load(path: Path) -> list[Row]:
    """Every prompt and its marks, those of its last line; BadLine names the first line that is wrong."""
    return list({row.prompt.text: row for row in _rows(path)}.values())


def _rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                marks = msgspec.json.decode(line, type=_Marks)
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadLine(f"{path}:{number}: {error}") from None
            seen = peek(line)
            weak, strong = float(marks.weak_ok), float(marks.strong_ok)
            if seen is None:
                raise BadLine(f"{path}:{number}: neither a `prompt` nor `messages` with a user's turn")
            if not (0 <= weak <= 1 and 0 <= strong <= 1):
                raise BadLine(
                    f"{path}:{number}: weak_ok and strong_ok are true, false or a number from 0 to 1"
                )
            yield Row(seen.prompt, weak, strong)
