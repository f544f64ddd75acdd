"""Small made-up tables in the public ones' layout: the strong model gains where certain words stand."""

import csv
import json
from pathlib import Path
from random import Random

WEAK, STRONG = "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"
FUSION = [
    "mistral-7b-instruct-v0.3",
    "gemma-2-9b-it",
    "llama-3.1-8b-instruct",
    "llama-3.1-nemotron-51b-instruct",
]
GAINS = ("violet", "orbit", "enzyme")
LOSES = ("apple", "river", "window")
OTHER = ("stone", "paper", "garden", "winter", "carpet", "bottle", "summer", "ladder", "mirror", "pencil")


def prompts(count: int, seed: int, telling: bool = True) -> list[tuple[str, bool, bool]]:
    """(prompt, weak right, strong right); with `telling` a word says who is right, and never the length."""
    rng = Random(seed)
    made = []
    for number in range(count):
        gains = rng.random() < 0.5
        words = [rng.choice(OTHER) for _ in range(rng.randrange(5, 40))]
        words.insert(rng.randrange(len(words)), rng.choice(GAINS if gains else LOSES))
        weak = rng.random() < (0.9 if not gains or not telling else 0.3)
        strong = rng.random() < (0.9 if telling else 0.95)
        made.append((f"{' '.join(words)} number {number}", weak, strong))
    return made


def tables(folder: Path, mmlu: int = 300, gsm8k: int = 150) -> Path:
    """All tables, and the lists of contaminated rows of RouteLLM's, one of each."""
    (folder / "mmlu").mkdir()
    first, second = prompts(mmlu, 1), prompts(gsm8k, 2)
    half = len(first) // 2
    for name, rows in (("history", first[:half]), ("physics", first[half:])):
        _write(folder / "mmlu" / f"mmlu_{name}.csv", [WEAK, STRONG], [[*row] for row in rows])
    _write(
        folder / "gsm8k_responses.csv",
        [WEAK, STRONG, f"{WEAK}_response", f"{STRONG}_response"],
        [[*row, "2 + 2 = 4\n#### 4" if row[1] else "2 + 2 = 5", "4"] for row in second],
    )
    third = [[text, *[float(weak)] * 3, float(strong)] for text, weak, strong in prompts(gsm8k, 3)]
    third[0][2] = third[1][4] = ""  # no score
    _write(folder / "fusionbench.csv", FUSION, third)
    for table, rows in (("mmlu", first), ("gsm8k", second)):
        line = json.dumps({"train_prompt": "x", "eval_prompt": rows[0][0]})
        (folder / f"contaminated_{table}.jsonl").write_text(line + "\n", encoding="utf-8")
    return folder


def _write(path: Path, models: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["prompt", *models])
        out.writerows(rows)


def log(path: Path, rows: list[tuple[str, bool, bool]]) -> Path:
    """An operator's log, every other line as a chat."""
    lines = []
    for at, (prompt, weak, strong) in enumerate(rows):
        said = {"messages": [{"role": "user", "content": prompt}]} if at % 2 else {"prompt": prompt}
        lines.append(json.dumps({**said, "weak_ok": weak, "strong_ok": float(strong)}))
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path
