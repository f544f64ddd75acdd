"""`sluice import-litellm`: reads LiteLLM's config, writes ours, and says what it could not take."""

from pathlib import Path
from typing import TextIO

from gateway.cli.import_litellm.output import variables, written
from gateway.cli.import_litellm.translate import translated
from gateway.config.environment import TooLargeError
from gateway.config.files import UnreadableError, read_text
from gateway.config.problems import printable
from gateway.config.yaml_loader import BrokenYamlError, parse


def run(file: str, out_file: str | None, out: TextIO, err: TextIO) -> int:
    """Translate; gives the exit status: 0, or 2 when the file cannot be read or holds nothing to serve.

    The config goes to `out_file`, which must not be there yet, or to `out`; all remarks go to `err`.
    OSError where it cannot be written.
    """
    place = printable(file)
    try:
        document, problems = parse(read_text(Path(file)))
    except (UnreadableError, BrokenYamlError, TooLargeError) as error:
        print(f"{place}: {error}", file=err)
        return 2
    if not isinstance(document, dict) or not document.get("model_list"):
        print(f"{place}: no model_list, so it is no config of LiteLLM's proxy", file=err)
        return 2
    found = translated(document)
    for problem in (*problems, *found.problems):
        print(problem, file=err)
    if not found.models:
        print(f"{place}: nothing in its model_list can be served", file=err)
        return 2
    text = written(found, Path(file).name)
    needed = ", ".join(variables(found))
    if out_file is None:
        print(text, end="", file=out)
    else:
        with Path(out_file).open("x", encoding="utf-8") as new:
            new.write(text)
    counts = f"{_counted(len(found.upstreams), 'upstream')}, {_counted(len(found.models), 'model')}"
    print(f"taken: {counts}{f'; needs {needed}' if needed else ''}", file=err)
    return 0


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
