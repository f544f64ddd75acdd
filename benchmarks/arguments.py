"""The command line of a benchmark: `--help` prints its docstring, and unknown options are rejected."""

import argparse
import sys
from pathlib import Path
from typing import Any


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser that prints `doc` unchanged as its help, under the module's name."""
    file = Path(sys.argv[0])
    name = file.parent.name if file.stem == "__main__" else file.stem
    shown = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc, formatter_class=shown)


def arguments(doc: str | None, **kinds: Any) -> list[Any]:
    """The arguments in the order of `kinds`: a type or a default per name; `list` takes all remaining ones.

    Exits with status 0 after `--help`, and with 2 if the arguments are wrong.
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
