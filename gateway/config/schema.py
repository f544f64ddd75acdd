"""The fields that the structs of `model.py` declare, as data: their paths, annotations and defaults."""

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from gateway.config.model import BatchingConfig, CacheConfig, Config, ModelConfig, Section, UpstreamConfig
from gateway.config.scalars import model_name, upstream_name

NAMED: Final[Mapping[type[Section], Callable[[str], str]]] = {
    UpstreamConfig: upstream_name,
    ModelConfig: model_name,
}
"""Sections that stand below a name of the user's choice, with the parser of that name. It is their `name`."""

DERIVED_DEFAULTS: Final = {
    "models.*.candidates[].model": "the public name",
    "server.learned_path": "`sluice-learned.json` beside `usage.path`; none without `usage.store: sqlite`",
}
"""Paths of fields whose default is not a constant, with that default in words."""


class Field(NamedTuple):
    """One field of the config file. `[]` in its path stands for an entry of a list, `*` for a chosen name."""

    path: str
    name: str
    annotation: Any
    section: type[Section]

    @property
    def inherits(self) -> bool:
        """Whether the field overrides a top section, whose fields are described there."""
        return self.section is ModelConfig and self.annotation in (BatchingConfig, CacheConfig)


@functools.cache
def annotations(section: type[Section]) -> dict[str, Any]:
    """The annotations of a section's attributes, in order."""
    hints = get_type_hints(section, include_extras=True)
    return {name: hints[name] for name in section.__struct_fields__}


@functools.cache
def file_fields(section: type[Section]) -> dict[str, Any]:
    """The annotations of the fields that a section has in the file, in order."""
    hints = annotations(section)
    return {name: hint for name, hint in hints.items() if not (section in NAMED and name == "name")}


@functools.cache
def defaults(section: type[Section]) -> dict[str, Any]:
    """The default of each attribute that has one."""
    return {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(section)
        if not field.required
    }


def is_section(annotation: Any) -> bool:
    """Whether the annotation is a section's class."""
    return isinstance(annotation, type) and issubclass(annotation, Section)


def is_union(annotation: Any) -> bool:
    """Whether the annotation is `A | B`, written or imported in either form."""
    return get_origin(annotation) in (Union, types.UnionType)


def fields(section: type[Section] = Config, path: str = "") -> Iterator[Field]:
    """Every field of a section and of the sections inside it, in the order of the reference page."""
    for name, annotation in file_fields(section).items():
        field = Field(f"{path}.{name}" if path else name, name, annotation, section)
        yield field
        if not field.inherits:
            yield from _inner(annotation, field.path)


def _inner(annotation: Any, path: str) -> Iterator[Field]:
    arguments = get_args(annotation)
    if is_union(annotation):
        for argument in arguments:
            yield from _inner(argument, path)
    elif get_origin(annotation) is Mapping:
        yield from _inner(arguments[1], f"{path}.*")
    elif get_origin(annotation) is tuple:
        yield from _inner(arguments[0], f"{path}[]")
    elif is_section(annotation):
        yield from fields(annotation, path)
