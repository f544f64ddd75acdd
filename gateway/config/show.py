"""The effective config in the shape of the file, with every secret masked."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args, get_origin

import yaml
from msgspec.structs import asdict

from gateway.config.model import Config, Section
from gateway.config.schema import file_fields, is_union
from gateway.core.units import MASK, Secret

_HARMLESS: Final = frozenset(
    {"anthropic-beta", "anthropic-version", "http-referer", "openai-beta", "openai-organization"}
    | {"openai-project", "user-agent", "x-title"}
)
"""Headers shown with their values. The value of any other header may be a credential."""


def effective(config: Config) -> dict[str, Any]:
    """The config as plain dicts, lists, text and numbers, in the schema's order."""
    return _section(config)


def as_yaml(config: Config) -> str:
    """The config as YAML that loads to the same config, masked secrets aside."""
    return yaml.safe_dump(effective(config), sort_keys=False, width=110)


def _section(section: Section) -> dict[str, Any]:
    fields, values = file_fields(type(section)), asdict(section)
    return {name: _value(annotation, values[name]) for name, annotation in fields.items()}


def _value(annotation: Any, value: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(value, Section):
        return _section(value)
    if origin is Annotated:
        return arguments[1].show(value)
    if is_union(annotation):
        return None if value is None else _value(arguments[0], value)
    if origin is Mapping:
        return {name: _entry(arguments[1], name, item) for name, item in value.items()}
    if origin is frozenset:
        return sorted(value)
    if origin is tuple:
        return [_value(arguments[0], item) for item in value]
    return value


def _entry(annotation: Any, name: str, value: Any) -> Any:
    if isinstance(value, Secret):  # a header's value
        return value.reveal() if name.lower() in _HARMLESS else MASK
    return _value(annotation, value)
