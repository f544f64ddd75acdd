"""The hand-written pairs of prompts in `pairs.txt`."""

from pathlib import Path

_LINES = Path(__file__).with_name("pairs.txt").read_text(encoding="utf-8").splitlines()

PAIRS = [(english, korean) for line in _LINES if "\t" in line for english, korean in [line.split("\t")]]
"""(English, Korean): fifty easy pairs, then fifty hard ones."""
