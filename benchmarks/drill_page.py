"""The runbooks as a drill reads them: the commands of each part, and what each should show."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "runbooks.md"
_PART = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Look(NamedTuple):
    """A command, and what one of its lines (or several in a row) shows; `...` matches anything."""

    command: str
    shows: str

    def seen_in(self, said: str) -> bool:
        """Whether the output shows it."""
        pattern = ".*?".join(map(re.escape, re.split(r"\s*\.\.\.\s*", self.shows)))
        return re.search(pattern, said, re.DOTALL) is not None


def looks(page: str | None = None) -> dict[str, list[Look]]:
    """The commands by alert, in the order of docs/runbooks.md."""
    text = PAGE.read_text(encoding="utf-8") if page is None else page
    return {
        name: [look for block in _BLOCK.findall(part) for look in _read(block)] for name, part in _PART.findall(text)
    }


def _read(block: str) -> list[Look]:
    lines = (line.partition("  # ") for line in block.splitlines())
    return [Look(command.strip(), shows.strip()) for command, _, shows in lines]
