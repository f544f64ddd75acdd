"""From a file to a Config, or to the list of everything that is wrong with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.config.cross_checks import cross_problems, header_problems, unmatched_patterns
from gateway.config.environment import Expander, TooLargeError
from gateway.config.files import UnreadableError, environment, read_text
from gateway.config.model import Config
from gateway.config.optional_upstreams import leave_out, take_blank_keys
from gateway.config.problems import Problem, printable
from gateway.config.reader import Reader
from gateway.config.yaml_loader import BrokenYamlError, parse


class Loaded(Struct, frozen=True, kw_only=True):
    """A config, or problems. `configured` holds the fields that the user wrote, such as `keys.limits`."""

    config: Config | None = None
    problems: list[Problem] = []
    warnings: list[str] = []
    configured: frozenset[str] = frozenset()


def load(path: Path, environ: Mapping[str, str], server: Mapping[str, object] | None = None) -> Loaded:
    """Read the file, and the `.env` beside it; `server` overrides fields of the server section.

    Never raises for anything that stands in the file or keeps it from being read.
    """
    place = printable(str(path))
    try:
        text = read_text(path)
    except UnreadableError as error:
        return _failed(place, str(error))
    try:
        variables = environment(path.parent, environ)
    except UnreadableError as error:
        return _failed(printable(str(path.parent / ".env")), str(error))
    expander = Expander(variables)
    try:
        document, problems = parse(text)
        document = expander.expand(document)
    except (BrokenYamlError, TooLargeError) as error:
        return _failed(place, str(error))
    if not isinstance(document, dict):
        what = "is empty" if document is None else "holds no fields"
        return _failed(place, f"{what}; it needs upstreams and models")
    return _checked(_overridden(document, server or {}), problems + expander.problems)


def _failed(place: str, message: str) -> Loaded:
    return Loaded(problems=[Problem(place, message)])


def _overridden(document: dict[str, Any], server: Mapping[str, object]) -> dict[str, Any]:
    section = document.get("server")
    # A section that is no mapping is left for the reader to report.
    if not server or not isinstance(section, dict | None):
        return document
    return {**document, "server": (section or {}) | {name: str(value) for name, value in server.items()}}


def _checked(document: dict[str, Any], problems: list[Problem]) -> Loaded:
    blank = take_blank_keys(document)
    reader = Reader()
    config = reader.config(document)
    problems += reader.problems
    warnings = list(unmatched_patterns(config))
    told = {problem.path for problem in problems}
    for problem in (*cross_problems(config, reader.written), *header_problems(config)):
        # One line for each mistake: what is wrong in itself need not fit the rest too.
        inside_replaced = any(problem.path.startswith(f"{place}.") for place in reader.replaced)
        if problem.path not in told and not inside_replaced:
            problems.append(problem)
    config, left_out, empty = leave_out(config, blank)
    if not problems:
        problems = empty
    return Loaded(
        config=None if problems else config,
        problems=problems,
        warnings=[*left_out, *warnings],
        configured=frozenset(reader.configured),
    )
