"""Whether a JSON value has the shape that a request asked for, as far as a few words of JSON Schema tell."""

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
_DEEPEST: Final = 64
_MOST: Final = 20_000
"""Looks at values and names: a schema of a kilobyte can ask for 2 to the power of 30."""


class _Whole:
    """The schema that references lead into, and how many more looks there are for it."""

    __slots__ = ("left", "schema")

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.left = _MOST


def fits(value: Any, schema: Any) -> bool:
    """Whether nothing in the schema's types, enums, properties, items and references speaks against it.

    Words that are not known here say nothing, nor does what is left when it took too long: what does not fit
    is wrong, what fits may be.
    """
    return _fits(value, schema, _Whole(schema), 0)


def _fits(value: Any, schema: Any, root: _Whole, depth: int) -> bool:
    if not isinstance(schema, dict) or depth > _DEEPEST or root.left <= 0:
        return schema is not False
    root.left -= 1
    reference = schema.get("$ref")
    if isinstance(reference, str) and not _fits(value, _found(reference, root.schema), root, depth + 1):
        return False
    if not _is(value, schema.get("type")):
        return False
    enum = schema.get("enum")
    if isinstance(enum, list):
        root.left -= len(enum)
        if value not in enum:
            return False
    if "const" in schema and value != schema["const"]:
        return False
    others = schema.get("anyOf")
    if isinstance(others, list) and not any(_fits(value, one, root, depth + 1) for one in others):
        return False
    if isinstance(value, dict):
        return _object(value, schema, root, depth)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return all(_fits(one, items, root, depth + 1) for one in value)
    return True


def _object(value: dict[str, Any], schema: dict[str, Any], root: _Whole, depth: int) -> bool:
    root.left -= len(value)
    required, properties = schema.get("required"), schema.get("properties")
    if isinstance(required, list):
        root.left -= len(required)
        if any(isinstance(one, str) and one not in value for one in required):
            return False
    known = properties if isinstance(properties, dict) else {}
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if closed and value.keys() - known.keys():
        return False
    return all(_fits(one, known[name], root, depth + 1) for name, one in value.items() if name in known)


def _is(value: Any, types: Any) -> bool:
    wanted = [types] if isinstance(types, str) else types
    if not isinstance(wanted, list) or not wanted:
        return True
    return any(not isinstance(one, str) or _is_one(value, one) for one in wanted)


def _is_one(value: Any, name: str) -> bool:
    kinds = _TYPES.get(name)
    if kinds is None:
        return True
    if isinstance(value, bool):
        return bool in kinds
    whole = not isinstance(value, float) or value.is_integer()
    return isinstance(value, kinds) and (name != "integer" or whole)


def _found(reference: str, root: Any) -> Any:
    """What a reference within the same schema points to; anything else says nothing."""
    at = root if reference.startswith("#") else {}
    for step in reference.split("/")[1:]:
        at = at.get(step.replace("~1", "/").replace("~0", "~"), {}) if isinstance(at, dict) else {}
    return at
