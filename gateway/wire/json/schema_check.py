"""Checks a JSON value against a small subset of JSON Schema, with bounded work.

Clients supply the schemas, so a complete validator would let them ask for unbounded work.
"""

from typing import Any, Final

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_MAX_DEPTH: Final = 64
_MAX_STEPS: Final = 20_000
"""Values and names compared: a schema of a kilobyte can demand 2**30."""


class _Root:
    """The root schema, target of references, and the remaining steps."""

    __slots__ = ("schema", "steps")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.steps = _MAX_STEPS


def fits(value: Any, schema: Any) -> bool:
    """Whether the schema's types, enums, properties, items and references allow the value.

    Unknown keywords are ignored, and so is the rest of a schema that takes too long: False is certain, True
    is not.
    """
    return _fits(value, schema, _Root(schema), 0)


def _fits(value: Any, schema: Any, root: _Root, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH or root.steps <= 0:
        return schema is not False
    root.steps -= 1
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _fits(value, _resolve(reference, root.schema), root, depth + 1):
        return False
    if not _has_type(value, schema.get("type")):
        return False
    enum = schema.get("enum")
    if isinstance(enum, list):
        root.steps -= len(enum)
        if value not in enum:
            return False
    if "const" in schema and value != schema["const"]:
        return False
    alternatives = schema.get("anyOf")
    if isinstance(alternatives, list) and not any(_fits(value, each, root, depth + 1) for each in alternatives):
        return False
    if isinstance(value, dict):
        return _fits_object(value, schema, root, depth)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return all(_fits(item, items, root, depth + 1) for item in value)
    return True


def _fits_object(value: dict[str, Any], schema: dict[str, Any], root: _Root, depth: int) -> bool:
    root.steps -= len(value)
    required, properties = schema.get("required"), schema.get("properties")
    if isinstance(required, list):
        root.steps -= len(required)
        if any(isinstance(name, str) and name not in value for name in required):
            return False
    declared = properties if isinstance(properties, dict) else {}
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if closed and value.keys() - declared.keys():
        return False
    return all(_fits(member, declared[name], root, depth + 1) for name, member in value.items() if name in declared)


def _has_type(value: Any, types: Any) -> bool:
    names = [types] if isinstance(types, str) else types
    if not isinstance(names, list) or not names:
        return True
    return any(not isinstance(name, str) or _is_a(value, name) for name in names)


def _is_a(value: Any, name: str) -> bool:
    types = _TYPES.get(name)
    if types is None:
        return True
    if isinstance(value, bool):
        return bool in types
    integral = not isinstance(value, float) or value.is_integer()
    return isinstance(value, types) and (name != "integer" or integral)


def _resolve(reference: str, root: Any) -> Any:
    """The target of a reference within the same schema; an empty schema for any other reference."""
    at = root if reference.startswith("#") else {}
    for step in reference.split("/")[1:]:
        at = at.get(step.replace("~1", "/").replace("~0", "~"), {}) if isinstance(at, dict) else {}
    return at
