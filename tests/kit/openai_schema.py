"""OpenAI's own schema of its wire, see `tests/fixtures/openai-schema`."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

_FILE = Path(__file__).parents[1] / "fixtures/openai-schema/openai.json"


@cache
def document() -> dict[str, Any]:
    """The whole description."""
    loaded: dict[str, Any] = json.loads(_FILE.read_bytes())
    return loaded


def check(value: object, name: str) -> None:
    """Assert that a value has this shape, a name of `components.schemas`."""
    error = best_match(_validator(f"#/components/schemas/{name}").iter_errors(value))
    assert error is None, f"no {name}: {error.json_path}: {error.message[:500]}"


def check_answer(value: object, method: str, path: str, content_type: str = "application/json") -> None:
    """Assert that a value is the answer of status 200 to this operation; `path` as in the description."""
    answer = document()["paths"][path][method]["responses"]["200"]
    schema = answer["content"][content_type]["schema"]
    error = best_match(Draft202012Validator({**document(), **schema}).iter_errors(value))
    assert error is None, f"no answer to {method} {path}: {error.json_path}: {error.message[:500]}"


def event_types(name: str) -> Iterator[str]:
    """The `type` of each kind of event that this schema lists."""
    schemas = document()["components"]["schemas"]
    for option in schemas[name]["anyOf"]:
        yield from schemas[option["$ref"].rpartition("/")[2]]["properties"]["type"]["enum"]


@cache
def _validator(reference: str) -> Draft202012Validator:
    return Draft202012Validator({**document(), "$ref": reference})
