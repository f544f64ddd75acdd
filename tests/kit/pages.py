"""The pages for users, with their code blocks and tables."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READMES = [ROOT / "README.md", ROOT / "README.ko.md"]
TOP = [*READMES, ROOT / "ARCHITECTURE.md"]
PAGES = [
    *TOP,
    *(ROOT / name for name in ("GLOSSARY.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The text of every code block in this language."""
    return [body for name, body in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def tables(page: Path) -> list[list[list[str]]]:
    """The cells of every table of a page, row by row, without the head."""
    tables = re.findall(r"^(?:\|.*\|\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [
        [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()[2:]] for table in tables
    ]


def links(text: str) -> list[str]:
    """The targets of the links of a text, in order."""
    return re.findall(r"\]\(([^)\s]+)\)", text)


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells, row by row, of the first table with this head (`a | b | c`)."""
    text = page.read_text(encoding="utf-8")
    below = text.partition(f"| {heading} |\n")[2].splitlines()
    assert below, f"{page.name} has no table {heading}"
    rows = []
    for line in below[1:]:
        if not line.startswith("| "):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows
