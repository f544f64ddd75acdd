"""`sluice check --schema`: what the JSON Schema accepts, what it rejects, and that it covers every field."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from kit.pages import ROOT
from sample_configs import FULL, MINIMAL

from gateway.cli.main import main
from gateway.config.json_schema import json_schema
from gateway.config.schema import fields

CONFIGS = [
    *sorted(ROOT.glob("examples/*.yaml")),
    ROOT / "deploy/config/sluice.yaml",
    ROOT / "deploy/k8s/sluice.yaml",
]


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def wrong(validator: Draft202012Validator, document: Any) -> list[str]:
    """The paths that the schema rejects."""
    return [error.json_path for error in validator.iter_errors(document)]


def config(**sections: Any) -> dict[str, Any]:
    """The minimal config with these sections."""
    return yaml.safe_load(MINIMAL) | sections


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_it_accepts_every_shipped_config(validator: Draft202012Validator, path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if document.get("kind") == "ConfigMap":
        document = yaml.safe_load(document["data"]["sluice.yaml"])
    assert wrong(validator, document) == []


@pytest.mark.parametrize("text", [MINIMAL, FULL])
def test_it_accepts_what_the_gateway_accepts(validator: Draft202012Validator, text: str) -> None:
    assert wrong(validator, yaml.safe_load(text)) == []


@pytest.mark.parametrize(
    "sections",
    [
        {"server": {"port": "${PORT:-8080}", "max_body": "${SIZE}", "heartbeat": False}},
        {"server": {"port": "8080", "drain": None}},
        {"batching": {"policy": False, "max_wait": 0}},
        {"cache": {"enabled": "${CACHE:-on}", "ttl": "os.environ/TTL"}},
        {"log": {"level": "${LEVEL:-info}"}},
        {"redis": None, "keys": None},
    ],
)
def test_it_accepts_references_text_and_what_yaml_makes_of_plain_words(
    validator: Draft202012Validator, sections: dict[str, Any]
) -> None:
    assert wrong(validator, config(**sections)) == []


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"admin_port": 1}, "$"),
        ({"server": {"prot": 1}}, "$.server"),
        ({"server": {"port": 65536}}, "$.server.port"),
        ({"server": {"port": "x"}}, "$.server.port"),
        ({"server": {"max_body": "32MB"}}, "$.server.max_body"),
        ({"server": {"body_timeout": "soon"}}, "$.server.body_timeout"),
        ({"keys": [{"key": "abcdefgh"}]}, "$.keys[0]"),
        ({"upstreams": {"a": {"kind": "vlm", "base_url": "http://h/v1"}}}, "$.upstreams.a.kind"),
        ({"models": {"a": {"candidates": [{}]}}}, "$.models.a.candidates[0]"),
        ({"models": {"a": {"candidates": [], "batching": {"size": 1}}}}, "$.models.a.batching"),
        ({"log": {"level": "loud"}}, "$.log.level"),
    ],
)
def test_it_rejects_unknown_fields_missing_fields_and_wrong_values(
    validator: Draft202012Validator, sections: dict[str, Any], path: str
) -> None:
    assert wrong(validator, config(**sections)) == [path]


def test_every_field_has_a_description_and_its_default() -> None:
    schema = json_schema()
    for field in fields():
        place = schema
        for part in field.path.replace("[]", ".[]").split("."):
            options = [place, *place.get("anyOf", ())]
            key = {"[]": "items", "*": "additionalProperties"}.get(part, "properties")
            (place,) = (
                option[key] if key != "properties" else option[key][part] for option in options if key in option
            )
        assert place["description"]
    assert schema["properties"]["server"]["properties"]["heartbeat"]["default"] == "15s"
    assert schema["properties"]["models"]["additionalProperties"]["required"] == ["candidates"]
