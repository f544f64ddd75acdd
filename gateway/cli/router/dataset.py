"""Labelled prompts from public tables or a log, with deterministic sampling by the prompt's hash."""

import csv
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.prompt import peek
from gateway.wire.request_body import read_fields

WEAK: Final = "mistralai/Mixtral-8x7B-Instruct-v0.1"
STRONG: Final = "gpt-4-1106-preview"
FUSION_STRONG: Final = "llama-3.1-nemotron-51b-instruct"
FUSION_WEAK: Final = ("mistral-7b-instruct-v0.3", "gemma-2-9b-it", "llama-3.1-8b-instruct")

MMLU: Final = "MMLU"
GSM8K: Final = "GSM8K"
FUSION: Final = "FusionBench"


class TablesMissing(Exception):
    """The folder does not contain the tables."""


class LabelledPrompt(NamedTuple):
    """A prompt; `weak` and `strong` are 1.0 if that model was right. `answer` is the weak model's.

    `table` is the pair of models and prompts that it was measured with; only rows of one table compare.
    """

    prompt: Prompt
    weak: float
    strong: float
    answer: str = ""
    table: str = ""

    @property
    def gain(self) -> float:
        """The gain of the strong model over the weak one."""
        return self.strong - self.weak


class Table(NamedTuple):
    """Rows of one pair of models. Tables of one source share prompts, and are left out together."""

    name: str
    source: str
    rows: list[LabelledPrompt]


def tables(folder: Path) -> list[Table]:
    """Read all tables in a folder, or in `routellm` and `fusionbench` below it. Raises TablesMissing."""
    routellm = next((at for at in (folder, folder / "routellm") if (at / "mmlu").is_dir()), folder)
    found = [Table(MMLU, MMLU, mmlu(routellm)), Table(GSM8K, GSM8K, gsm8k(routellm))]
    return [*found, *fusionbench(folder)]


def fusionbench(folder: Path) -> list[Table]:
    """Read FusionBench's prompts with the scores of its models: one table for each weak model."""
    name = "fusionbench.csv"
    path = next((at for at in (folder / name, folder / "fusionbench" / name) if at.exists()), None)
    if path is None:
        raise TablesMissing(f"{folder} has no {name}")
    with path.open(newline="", encoding="utf-8") as file:
        lines = [*csv.DictReader(file)]
    return [Table(f"{FUSION}, {weak}", FUSION, [*_scored(lines, weak)]) for weak in FUSION_WEAK]


def _scored(lines: Sequence[dict[str, str]], weak: str) -> Iterator[LabelledPrompt]:
    for line in lines:
        if line[weak] and line[FUSION_STRONG]:
            scores = float(line[weak]), float(line[FUSION_STRONG])
            yield LabelledPrompt(Prompt(line["prompt"]), *scores, table=weak)


def draw(rows: Sequence[LabelledPrompt], salt: str = "") -> list[LabelledPrompt]:
    """Sort the rows by sha256(salt + prompt): the same order everywhere, whatever the file's order."""
    return sorted(rows, key=lambda row: _hash(salt, row.prompt.text))


def folds(rows: Sequence[LabelledPrompt], count: int) -> Iterator[tuple[list[LabelledPrompt], list[LabelledPrompt]]]:
    """Yield `count` pairs of training and test rows; equal prompts are never on both sides."""
    for fold in range(count):
        yield (
            [row for row in rows if int(_hash("fold:", row.prompt.text)[:8], 16) % count != fold],
            [row for row in rows if int(_hash("fold:", row.prompt.text)[:8], 16) % count == fold],
        )


def _hash(salt: str, text: str) -> str:
    return hashlib.sha256((salt + text).encode("utf-8", "surrogatepass")).hexdigest()


def mmlu(folder: Path) -> list[LabelledPrompt]:
    """Read RouteLLM's MMLU table without its contaminated rows. Raises TablesMissing."""
    paths = sorted(folder.glob("mmlu/mmlu_*.csv"))
    if not paths:
        raise TablesMissing(f"{folder} has no mmlu/mmlu_*.csv")
    rows = [row for path in paths for row in _read(path, MMLU)]
    return _clean(rows, folder / "contaminated_mmlu.jsonl")


def gsm8k(folder: Path) -> list[LabelledPrompt]:
    """Read RouteLLM's GSM8K table with the weak model's answers, without its contaminated rows."""
    path = folder / "gsm8k_responses.csv"
    if not path.exists():
        raise TablesMissing(f"{folder} has no {path.name}")
    return _clean([*_read(path, GSM8K)], folder / "contaminated_gsm8k.jsonl")


def _read(path: Path, table: str) -> Iterator[LabelledPrompt]:
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            weak, strong = (float(line[model] == "True") for model in (WEAK, STRONG))
            answer = line.get(f"{WEAK}_response") or ""
            yield LabelledPrompt(Prompt(line["prompt"]), weak, strong, answer, table)


def _clean(rows: list[LabelledPrompt], contaminated: Path) -> list[LabelledPrompt]:
    """Remove prompts known from training data, by exact text."""
    lines = contaminated.read_text(encoding="utf-8").splitlines() if contaminated.exists() else []
    banned = {msgspec.json.decode(line)["eval_prompt"] for line in lines if line.strip()}
    return [row for row in rows if row.prompt.text not in banned]


class BadLine(Exception):
    """A line does not match the format; the message has its number."""


class _Labels(Struct):
    weak_ok: bool | float
    strong_ok: bool | float


def load(path: Path) -> list[LabelledPrompt]:
    """Read every prompt with the labels of its last line. Raises BadLine for the first bad line."""
    return list({row.prompt.text: row for row in _rows(path)}.values())


def _rows(path: Path) -> Iterator[LabelledPrompt]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                labels = msgspec.json.decode(line, type=_Labels)
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadLine(f"{path}:{number}: {error}") from None
            peeked = peek(read_fields(line))
            weak, strong = float(labels.weak_ok), float(labels.strong_ok)
            if peeked is None:
                raise BadLine(f"{path}:{number}: neither a `prompt` nor `messages` with a user's turn")
            if not (0 <= weak <= 1 and 0 <= strong <= 1):
                raise BadLine(f"{path}:{number}: weak_ok and strong_ok are true, false or a number from 0 to 1")
            yield LabelledPrompt(peeked.prompt, weak, strong)
