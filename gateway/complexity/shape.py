"""Whether an answer has the JSON shape that was asked for."""

from typing import Any, Final

import msgspec

_DEEPEST: Final = 32


def matches(text: str, schema: object) -> bool:
    """Whether an answer is JSON and has the shape that was asked for (None: any JSON object).

    Looks at type, enum, const, required, properties, additionalProperties: false, items, anyOf and local
    references; what else a schema says is taken as met.
    """
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return isinstance(value, dict) if schema is None else _fits(value, schema, schema, 0)


def _fits(value: Any, schema: Any, root: Any, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema is not False
    if "$ref" in schema:
        return _fits(value, _target(schema["$ref"], root), root, depth + 1)
    types = schema.get("type", [])
    if types and not any(_is_a(value, one) for one in ([types] if isinstance(types, str) else types)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "anyOf" in schema and not any(_fits(value, one, root, depth + 1) for one in schema["anyOf"]):
        return False
    if isinstance(value, list) and "items" in schema:
        return all(_fits(one, schema["items"], root, depth + 1) for one in value)
    return not isinstance(value, dict) or _fields_fit(value, schema, root, depth)


def _fields_fit(value: dict[str, Any], schema: dict[str, Any], root: Any, depth: int) -> bool:
    known = schema.get("properties", {})
    if not all(name in value for name in schema.get("required", [])):
        return False
    if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
        return False
    return all(_fits(value[name], known[name], root, depth + 1) for name in value.keys() & known.keys())


def _target(reference: object, root: Any) -> Any:
    """What `#/$defs/x` points to; anything at all where it points nowhere."""
    for name in str(reference).removeprefix("#").strip("/").split("/"):
        root = root.get(name, {}) if isinstance(root, dict) else {}
    return root


_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def _is_a(value: Any, name: str) -> bool:
    if name in ("number", "integer") and isinstance(value, bool):
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, object))
