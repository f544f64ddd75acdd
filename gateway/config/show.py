"""The effective config in the shape of the file, with every secret masked."""

import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

import yaml

from gateway.config.model import Config, ModelConfig, Section, UpstreamConfig
from gateway.config.reader import schema
from gateway.core.units import MASK, Secret

_HARMLESS: Final = frozenset(
    {"anthropic-beta", "anthropic-version", "http-referer", "openai-beta", "openai-organization"}
    | {"openai-project", "user-agent", "x-title"}
)
"""Headers that are shown with their values. Any other may hold a credential, whatever it is called."""


def effective(config: Config) -> dict[str, Any]:
    """The config as plain dicts, lists, text and numbers, in the schema's order."""
    return _section(config)


def as_yaml(config: Config) -> str:
    """The config as YAML that, but for its masked secrets, loads to the same config."""
    return yaml.safe_dump(effective(config), sort_keys=False, width=110)


def _section(section: Section) -> dict[str, Any]:
    named = isinstance(section, UpstreamConfig | ModelConfig)
    return {
        field: _value(wanted, getattr(section, field))
        for field, wanted in schema(type(section)).items()
        if not (named and field == "name")
    }


def _value(wanted: Any, value: Any) -> Any:
    origin, arguments = get_origin(wanted), get_args(wanted)
    if isinstance(value, Section):
        return _section(value)
    if origin is Annotated:
        return arguments[1].show(value)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(arguments[0], value)
    if origin is Mapping:
        return {name: _entry(arguments[1], name, item) for name, item in value.items()}
    if origin is frozenset:
        return sorted(value)
    if origin is tuple:
        return [_value(arguments[0], item) for item in value]
    return value


def _entry(wanted: Any, name: str, value: Any) -> Any:
    if isinstance(value, Secret):  # a header's value
        return value.reveal() if name.lower() in _HARMLESS else MASK
    return _value(wanted, value)
