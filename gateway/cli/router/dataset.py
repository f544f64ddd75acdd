"""Prompts with what both models made of them, and how they are drawn: by the hash of the prompt."""

import csv
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.prompt import peek

WEAK: Final = "mistralai/Mixtral-8x7B-Instruct-v0.1"
STRONG: Final = "gpt-4-1106-preview"


class NoTables(Exception):
    """The folder does not hold the tables."""


class LabelledPrompt(NamedTuple):
    """One prompt; `weak` and `strong` are 1.0 where that model was right. `answer` is the weak model's."""

    prompt: Prompt
    weak: float
    strong: float
    answer: str = ""

    @property
    def gain(self) -> float:
        """What asking the strong model would have brought."""
        return self.strong - self.weak


def draw(rows: Sequence[LabelledPrompt], salt: str = "") -> list[LabelledPrompt]:
    """The rows by sha256(salt + prompt): the same order on every machine, whatever that of the file."""
    return sorted(rows, key=lambda row: _hash(salt, row.prompt.text))


def folds(
    rows: Sequence[LabelledPrompt], count: int
) -> Iterator[tuple[list[LabelledPrompt], list[LabelledPrompt]]]:
    """(to learn from, to measure on), `count` times; equal prompts never stand on both sides."""
    for fold in range(count):
        yield (
            [row for row in rows if int(_hash("fold:", row.prompt.text)[:8], 16) % count != fold],
            [row for row in rows if int(_hash("fold:", row.prompt.text)[:8], 16) % count == fold],
        )


def _hash(salt: str, text: str) -> str:
    return hashlib.sha256((salt + text).encode("utf-8", "surrogatepass")).hexdigest()


def mmlu(folder: Path) -> list[LabelledPrompt]:
    """RouteLLM's table of MMLU, its contaminated rows left out; NoTables where it is not there."""
    paths = sorted(folder.glob("mmlu/mmlu_*.csv"))
    if not paths:
        raise NoTables(f"{folder} has no mmlu/mmlu_*.csv")
    return _clean([row for path in paths for row in _read(path)], folder / "contaminated_mmlu.jsonl")


def gsm8k(folder: Path) -> list[LabelledPrompt]:
    """RouteLLM's table of GSM8K with the weak model's answers, its contaminated rows left out."""
    path = folder / "gsm8k_responses.csv"
    if not path.exists():
        raise NoTables(f"{folder} has no {path.name}")
    return _clean(list(_read(path)), folder / "contaminated_gsm8k.jsonl")


def _read(path: Path) -> Iterator[LabelledPrompt]:
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            weak, strong = (float(line[model] == "True") for model in (WEAK, STRONG))
            yield LabelledPrompt(Prompt(line["prompt"]), weak, strong, line.get(f"{WEAK}_response") or "")


def _clean(rows: list[LabelledPrompt], contaminated: Path) -> list[LabelledPrompt]:
    """Without the prompts that were found in training data, by their exact text."""
    lines = contaminated.read_text(encoding="utf-8").splitlines() if contaminated.exists() else []
    banned = {msgspec.json.decode(line)["eval_prompt"] for line in lines if line.strip()}
    return [row for row in rows if row.prompt.text not in banned]


class BadLine(Exception):
    """A line is not as the format says."""


class _Marks(Struct):
    weak_ok: bool | float
    strong_ok: bool | float


def load(path: Path) -> list[LabelledPrompt]:
    """Every prompt and its marks, those of its last line; BadLine names the first line that is wrong."""
    return list({row.prompt.text: row for row in _rows(path)}.values())


def _rows(path: Path) -> Iterator[LabelledPrompt]:
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
            yield LabelledPrompt(seen.prompt, weak, strong)
