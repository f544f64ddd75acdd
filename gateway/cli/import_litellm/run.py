"""`sluice import-litellm`: reads LiteLLM's config, writes the gateway's, and reports what it left out."""

from pathlib import Path
from typing import TextIO

from gateway.cli.import_litellm.keys import KeysError
from gateway.cli.import_litellm.output import variables, written
from gateway.cli.import_litellm.translate import translated
from gateway.cli.wrapped import say
from gateway.config.environment import TooLargeError
from gateway.config.files import UnreadableError, read_text
from gateway.config.problems import printable
from gateway.config.yaml_loader import BrokenYamlError, parse


def run(file: str, out_file: str | None, out: TextIO, err: TextIO, keys_file: str | None = None) -> int:
    """Convert and return the exit status: 0, or 2 if the file cannot be read or has nothing to serve.

    The config goes to `out_file`, which must not exist, or to `out`; all notes go to `err`. OSError if it
    cannot be written. `keys_file` is an export of LiteLLM's virtual keys.
    """
    name = printable(file)
    try:
        document, problems = parse(read_text(Path(file)))
    except (UnreadableError, BrokenYamlError, TooLargeError) as error:
        say(f"{name}: {error}", err)
        return 2
    if not isinstance(document, dict) or not document.get("model_list"):
        say(f"{name}: no model_list, so this is not a config of LiteLLM's proxy", err)
        return 2
    try:
        result = translated(document, None if keys_file is None else read_text(Path(keys_file)))
    except (UnreadableError, KeysError) as error:
        say(f"{printable(str(keys_file))}: {error}", err)
        return 2
    for problem in (*problems, *result.problems):
        say(problem, err)
    if not result.models:
        say(f"{name}: nothing in its model_list can be served", err)
        return 2
    text = written(result, Path(file).name)
    needed = ", ".join(variables(result))
    if out_file is None:
        print(text, end="", file=out)
    else:
        with Path(out_file).open("x", encoding="utf-8") as new:
            new.write(text)
    if result.left_out:
        say(f"left out: {printable(', '.join(result.left_out))}", err)
    counts = f"{_counted(len(result.upstreams), 'upstream')}, {_counted(len(result.models), 'model')}"
    say(f"converted: {counts}{f'; needs {needed}' if needed else ''}", err)
    return 0


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
