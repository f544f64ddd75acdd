"""The command line of a bench: `--help` prints its docstring, what it does not know is told."""

import argparse
import sys
from pathlib import Path
from typing import Any


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is `doc`, as it stands, under the name that `python -m` knows."""
    file = Path(sys.argv[0])
    name = file.parent.name if file.stem == "__main__" else file.stem
    shown = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=shown
    )


def arguments(doc: str | None, **kinds: Any) -> list[Any]:
    """What was given, in the order of `kinds`: for each name a type or a default; `list` takes all the rest.

    Ends the process with status 0 after `--help`, with 2 where the arguments are wrong.
    """
    command = parser_of(doc)
    for name, kind in kinds.items():
        if kind is list:
            command.add_argument(name, nargs=argparse.REMAINDER)
        elif isinstance(kind, type):
            command.add_argument(name, type=kind)
        else:
            command.add_argument(name, type=type(kind), default=kind, nargs="?")
    return list(vars(command.parse_args()).values())
