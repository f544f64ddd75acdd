"""Writes docs/configuration.md: `python -m gateway.config.document > docs/configuration.md`.

Names, types, defaults and allowed values are read off the schema, what is not built yet off `unbuilt.py`; the
words stand in `sentences.py`. A test keeps the page equal to this output.
"""

import sys
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from gateway.config import scalars
from gateway.config.model import Batching, Cache, Config, Model, Section, Upstream
from gateway.config.read import schema
from gateway.config.sentences import SENTENCES
from gateway.config.unbuilt import _ROWS as UNBUILT

_TAKES: Final = {
    scalars.Count: "whole number from 1",
    scalars.WholeNumber: "whole number from 0",
    scalars.Weight: "0 to 1000000",
    scalars.Workers: "1 to 1024",
    scalars.TcpPort: "0 to 65535",
    scalars.Fraction: "0 to 10",
    scalars.Share: "0 to 1",
    scalars.LogProbability: "-10 to 0",
    scalars.Flag: "`true`, `false`",
    scalars.Seconds: "duration",
    scalars.PositiveSeconds: "duration above 0",
    scalars.Heartbeat: "duration above 0, or `off`",
    scalars.Bytes: "size",
    scalars.Amount: "decimal number",
    scalars.Name: "text",
    scalars.Path: "path",
    scalars.Host: "address or host name",
    scalars.Origin: "origins",
    scalars.Timezone: "time zone name",
    scalars.Prefix: "text",
    scalars.BaseUrl: "http(s) address",
    scalars.RedisUrl: "redis address",
    scalars.KeyText: "text",
    scalars.Digest: "64 hex digits",
    scalars.ApiKey: "text",
    scalars.HeaderName: "header names",
    scalars.HeaderText: "text",
}

_DEFAULT_IN_WORDS: Final = {"models.*.candidates[].model": "the public name"}
"""Where the default is not a constant of the schema."""

_HEAD: Final = """\
# Configuration

One YAML file: `--config FILE`, else `$SLUICE_CONFIG`, else `./sluice.yaml`. `sluice check` reports everything
that is wrong with it, each with its place; `sluice check --show` prints it with all defaults filled in and
secrets masked. Four lines are enough:

```yaml
upstreams:
  local: {base_url: "http://127.0.0.1:8000/v1"}
models:
  small: {candidates: [{upstream: local}]}
```

- An unknown field is an error, and so is a value of the wrong kind.
- A duration is `250ms`, `2s`, `5m`, `1h` or plain seconds; a size is `512KiB`, `32MiB`, `1GiB` or bytes.
- `${NAME}`, or `os.environ/NAME`, takes a text from the environment; an unset variable is an error.
  `${NAME:-default}` has a default, `$${` is a plain `${`. A `.env` file beside the config is read too; the
  real environment wins.
- An upstream whose `api_key` comes out empty from such a default is left out with a warning, and so is a
  model that only it serves.
- In the tables `*` stands for a name that you choose and `[]` for each entry of a list.
- **Not built yet** marks a field that is accepted and checked while its feature is missing. `sluice serve`
  names those that you have set when it starts.

<!-- Written by `python -m gateway.config.document > docs/configuration.md`; edit gateway/config instead. -->
"""

_TABLE: Final = "| field | takes | default | meaning |\n| --- | --- | --- | --- |\n"


class _Field(NamedTuple):
    path: str
    takes: str
    default: str


def page() -> str:
    """The whole page. KeyError for a field without a sentence."""
    parts = [_HEAD]
    for name, wanted in schema(Config).items():
        rows = "".join(
            f"| `{field.path}` | {field.takes} | {field.default} | {_meaning(field.path)} |\n"
            for field in _inside(wanted, name)
        )
        parts.append(f"## {name}\n\n{_meaning(name)}\n\n{_TABLE}{rows}")
    return "\n".join(parts)


def paths() -> list[str]:
    """The path of every field, in the page's order."""
    found = []
    for name, wanted in schema(Config).items():
        found += [name, *(field.path for field in _inside(wanted, name))]
    return found


def _meaning(path: str) -> str:
    """The field's sentence, and what happens instead of it while it is not built."""
    plain = path.replace("[]", "").replace(".*", "")
    missing = [f" **Not built yet:** {row.instead}." for row in UNBUILT if row.field == plain]
    return "".join([SENTENCES[path], *missing])


def _inside(wanted: Any, path: str) -> Iterator[_Field]:
    """The fields below one that holds sections; nothing for any other."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        for one in arguments:
            yield from _inside(one, path)
    elif origin is Mapping:
        yield from _inside(arguments[1], f"{path}.*")
    elif origin is tuple:
        yield from _inside(arguments[0], f"{path}[]")
    elif isinstance(wanted, type) and issubclass(wanted, Section):
        yield from _fields(wanted, path)


def _fields(section: type[Section], path: str) -> Iterator[_Field]:
    defaults = {field.name: field for field in msgspec.structs.fields(section)}
    for name, wanted in schema(section).items():
        place = f"{path}.{name}"
        if name == "name" and section in (Upstream, Model):  # it is the key that stands above the section
            continue
        if wanted in (Batching, Cache):  # a model's own ones: the sections are told at the top
            yield _Field(place, "fields", "as the section")
            continue
        yield _Field(place, _takes(wanted), _DEFAULT_IN_WORDS.get(place) or _default(wanted, defaults[name]))
        yield from _inside(wanted, place)


def _takes(wanted: Any) -> str:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        return _TAKES[wanted]
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return f"{' or '.join(_takes(one) for one in arguments[:-1])}, or null"
    if origin is Mapping:
        return "header names and values"
    if origin in (tuple, frozenset):
        return f"list of {_takes(arguments[0])}"
    return "fields"


def _default(wanted: Any, field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, Section):
        return ""
    if get_origin(wanted) is Annotated:
        value = get_args(wanted)[1].show(value)
    # JSON is YAML too, but for the quotes around plain text.
    return f"`{value if isinstance(value, str) else msgspec.json.encode(value).decode()}`"


if __name__ == "__main__":
    sys.stdout.write(page())
