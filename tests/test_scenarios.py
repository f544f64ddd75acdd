"""SCENARIOS.md explains every code in the name of a test, and no other."""

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = set(re.findall(r"^\| `([a-z]+ \d+)` \|", (TESTS / "SCENARIOS.md").read_text("utf-8"), re.MULTILINE))
FAMILIES = "|".join({code.split()[0] for code in TABLE})
# `row_5`, `rows_35_36` and `batch_04_and_05`; the last number is not one of three digits.
IN_NAME = re.compile(rf"(?<![a-z])({FAMILIES}|rows|fault)((?:_(?:and_)?\d\d?(?!\d))+)")
IN_TEXT = re.compile(rf"\b({FAMILIES}|OPS|SSE)[ _-](\d\d?)\b(?!_)")


def codes(text: str) -> Iterator[str]:
    """The codes in the names, parameter ids and docstrings of a file's tests."""
    for name in re.findall(r"def (test_\w+)", text):
        for family, numbers in IN_NAME.findall(name):
            matrix = "row" if family in ("rows", "fault") else family
            yield from (f"{matrix} {number}" for number in re.findall(r"\d+", numbers))
    for family, number in IN_TEXT.findall(text):
        yield f"{family.lower()} {number}"


def test_every_code_in_a_test_name_is_explained_and_no_other():
    files = set(TESTS.rglob("test_*.py")) - {Path(__file__)}
    used = {code for file in files for code in codes(file.read_text("utf-8"))}
    assert sorted(used - TABLE) == []
    assert sorted(TABLE - used) == []
