"""Loads a config file: a `Config`, or the list of all its problems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.config.cross_checks import cross_problems, header_problems
from gateway.config.environment import Expander, TooLargeError
from gateway.config.files import UnreadableError, environment, read_text
from gateway.config.keys_file import FileKeys, read_keys
from gateway.config.model import Config
from gateway.config.optional_upstreams import leave_out, take_blank_keys
from gateway.config.problems import Problem, printable
from gateway.config.reader import Reader
from gateway.config.warnings import odd_models, prices_per_token, unmatched_patterns
from gateway.config.yaml_loader import BrokenYamlError, parse


class Loaded(Struct, frozen=True, kw_only=True):
    """A config or its problems. `configured` has the kinds of the written fields, such as `keys.limits`.

    `files` are the files that the config names and that were read with it.
    """

    config: Config | None = None
    problems: list[Problem] = []
    warnings: list[str] = []
    configured: frozenset[str] = frozenset()
    files: tuple[Path, ...] = ()


def load(path: Path, environ: Mapping[str, str], server: Mapping[str, object] | None = None) -> Loaded:
    """Read the file and the `.env` beside it; `server` overrides fields of the server section.

    Never raises, whatever the file contains and whether or not it can be read.
    """
    file = printable(str(path))
    try:
        text = read_text(path)
    except UnreadableError as error:
        return _failed(file, str(error))
    try:
        variables = environment(path.parent, environ)
    except UnreadableError as error:
        return _failed(printable(str(path.parent / ".env")), str(error))
    dotenv = printable(str(path.parent / ".env"))
    expander = Expander(variables, dotenv)
    try:
        document, problems = parse(text)
        document = expander.expand(document)
    except (BrokenYamlError, TooLargeError) as error:
        return _failed(file, str(error))
    if not isinstance(document, dict):
        found = "is empty" if document is None else "contains no fields"
        return _failed(file, f"{found}; it needs upstreams and models")
    if "model_list" in document and "models" not in document:
        return _failed(file, f"this is LiteLLM's config; convert it: sluice import-litellm {file}")
    document, more = _with_keys(_overridden(document, server or {}), path.parent)
    loaded = _checked(document, problems + expander.problems)
    if more is not None:
        loaded = _located(loaded, more, len(document["keys"]) - len(more.entries))
    return _with_variables(loaded, expander, dotenv)


def _with_keys(document: dict[str, Any], folder: Path) -> tuple[dict[str, Any], FileKeys | None]:
    """The document with the entries of `keys_file` behind its own keys."""
    named, keys = document.get("keys_file"), document.get("keys")
    # A section that is not a list is left for the reader to report.
    if not isinstance(named, str) or not named or not isinstance(keys, list | None):
        return document, None
    more = read_keys(folder / named)
    return {**document, "keys": [*(keys or []), *more.entries]}, more


def _located(loaded: Loaded, more: FileKeys, before: int) -> Loaded:
    """The problems of the entries of `keys_file` with their file and line."""
    problems = [more.renamed(problem, before) for problem in loaded.problems] + more.problems
    return replace(loaded, config=None if problems else loaded.config, problems=problems, files=(Path(more.file),))


def _with_variables(loaded: Loaded, expander: Expander, dotenv: str) -> Loaded:
    """Name the empty variable behind a wrong value, and warn of texts that are no reference."""
    problems = [
        Problem(problem.path, _empty(expander.empty[problem.path], problem.path, dotenv))
        if problem.path in expander.empty
        else problem
        for problem in loaded.problems
    ]
    wrong = {problem.path for problem in problems}
    blank = [
        f"{path}: environment variable {name} is empty"
        for path, name in expander.empty.items()
        if path not in wrong and ".headers." in path
    ]
    warnings = [*loaded.warnings, *expander.warnings, *blank]
    return replace(loaded, problems=problems, warnings=warnings)


def _empty(name: str, path: str, dotenv: str) -> str:
    optional = f"; ${{{name}:-}} leaves the upstream out" if path.endswith(".api_key") else ""
    return f"environment variable {name} is empty; set it, or put it into {dotenv}{optional}"


def _failed(file: str, message: str) -> Loaded:
    return Loaded(problems=[Problem(file, message)])


def _overridden(document: dict[str, Any], server: Mapping[str, object]) -> dict[str, Any]:
    section = document.get("server")
    # A section that is not a mapping is left for the reader to report.
    if not server or not isinstance(section, dict | None):
        return document
    return {**document, "server": (section or {}) | {name: str(value) for name, value in server.items()}}


def _checked(document: dict[str, Any], problems: list[Problem]) -> Loaded:
    blank = take_blank_keys(document)
    reader = Reader()
    config = reader.config(document)
    problems += reader.problems
    warnings = [*unmatched_patterns(config), *odd_models(config), *prices_per_token(config)]
    reported = {problem.path for problem in problems}
    for problem in (*cross_problems(config, reader.written), *header_problems(config)):
        # One line for each mistake: a value that is wrong by itself need not match other fields.
        inside_replaced = any(problem.path.startswith(f"{path}.") for path in reader.replaced)
        if problem.path not in reported and not inside_replaced:
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
