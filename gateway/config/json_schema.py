"""The JSON Schema (draft 2020-12) of the config file, for editors and other tools.

It describes the document as a YAML parser reads it, and accepts every config that the gateway accepts. Checks
across fields (names that must exist, pairs that exclude one another) are left to `sluice check`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from gateway.config.field_docs import SENTENCES
from gateway.config.model import Config, Section
from gateway.config.schema import (
    DERIVED_DEFAULTS,
    Field,
    defaults,
    file_fields,
    is_section,
    is_union,
)

_REFERENCE: Final = {"type": "string", "pattern": r"\$\{|^os\.environ/"}
"""A value that the environment fills in."""
_LINK: Final = re.compile(r"\[([^]]+)\]\([^)]*\)")


def json_schema() -> dict[str, Any]:
    """The schema of the whole file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Sluice configuration"}
    return head | _section(Config, "") | {"type": "object"}


def _section(section: type[Section], path: str) -> dict[str, Any]:
    properties, required = {}, []
    constants = defaults(section)
    for name, annotation in file_fields(section).items():
        field = Field(f"{path}.{name}" if path else name, name, annotation, section)
        described = {"description": _LINK.sub(r"\1", SENTENCES[field.path])}
        properties[name] = described | _field(field)
        if name in constants and not isinstance(constants[name], Section):
            properties[name]["default"] = shown(annotation, constants[name])
        elif name not in constants and field.path not in DERIVED_DEFAULTS:
            required.append(name)
    schema: dict[str, Any] = {"type": ["object", "null"], "properties": properties}
    return schema | {"required": required, "additionalProperties": False}


def _field(field: Field) -> dict[str, Any]:
    return {"$ref": f"#/properties/{field.name}"} if field.inherits else _value(field.annotation, field.path)


def _value(annotation: Any, path: str) -> dict[str, Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if is_section(annotation):
        return _section(annotation, path)
    if origin is Annotated:
        schemas = arguments[1].json
        return dict(schemas[0]) if len(schemas) == 1 else {"anyOf": [*schemas, _REFERENCE]}
    if origin is Literal:
        choices = [*arguments, False] if "off" in arguments else list(arguments)  # YAML 1.1 reads off as false
        return {"anyOf": [{"enum": choices}, _REFERENCE]}
    if is_union(annotation):
        options = [_value(option, path) for option in arguments if option is not type(None)]
        return {"anyOf": [*options, {"type": "null"}]}
    if origin is Mapping:
        return {"type": ["object", "null"], "additionalProperties": _value(arguments[1], f"{path}.*")}
    return {"type": ["array", "null"], "items": _value(arguments[0], f"{path}[]")}


def shown(annotation: Any, value: Any) -> Any:
    """A value as the file may have it, in plain types."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1].show(value)
    return msgspec.json.decode(msgspec.json.encode(value))
