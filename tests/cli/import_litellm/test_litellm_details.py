"""Details of the import: weights, names of secrets, what is no LiteLLM config, and the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.gateway import ROOT
from imported import written

from gateway.cli.import_litellm.providers import PROVIDERS, UNSUPPORTED, split
from gateway.cli.main import main


def deployments(*params: str, rest: str = "") -> str:
    """A config with one public model of these deployments."""
    entries = "".join(f"  - {{model_name: m, litellm_params: {{{one}}}}}\n" for one in params)
    return f"model_list:\n{entries}{rest}"


@pytest.mark.parametrize(
    ("params", "weights"),
    [
        (["", ""], [1, 1]),
        (["weight: 0.9", "weight: 0.1"], [9, 1]),
        (["weight: 2", ""], [1, 0]),
        (["rpm: 600, weight: 1", "rpm: 100, weight: 3"], [1, 3]),
        (["rpm: 600", "rpm: 100"], [6, 1]),
        (["tpm: 100_000", "tpm: 150000"], [2, 3]),
        (["weight: 9999991", "weight: 1"], [1_000_000, 0]),
    ],
)
def test_weights(tmp_path: Path, params: list[str], weights: list[int]) -> None:
    models = [f"model: openai/{i}, {one}" for i, one in enumerate(params)]
    result = written(tmp_path, deployments(*models))
    model = result.config["models"]["m"]
    assert model["route"] == "weighted"
    assert [one.get("weight", 1) for one in model["candidates"]] == weights
    assert result.load(tmp_path).problems == []


@pytest.mark.parametrize(
    ("strategy", "route", "noted"),
    [
        ("simple-shuffle", "weighted", False),
        ("least-busy", "least_loaded", False),
        ("cost-based-routing", "cheapest", False),
        ("usage-based-routing", "least_loaded", True),
        ("of-our-own", "weighted", True),
    ],
)
def test_strategies(tmp_path: Path, strategy: str, route: str, noted: bool) -> None:
    rest = f"router_settings: {{routing_strategy: {strategy}}}\n"
    result = written(tmp_path, deployments("model: openai/a", "model: openai/b", rest=rest))
    assert result.config["models"]["m"]["route"] == route
    assert ("router_settings.routing_strategy" in result.notes) == noted
    alone = written(tmp_path, deployments("model: openai/a", rest=rest))
    assert "route" not in alone.config["models"]["m"]
    assert alone.notes == {}


def test_deployments_with_the_same_settings_share_an_upstream(tmp_path: Path) -> None:
    same = "model: openai/a, api_key: os.environ/K"
    other = "model: openai/b, api_key: os.environ/K"
    assert list(written(tmp_path, deployments(same, other)).config["upstreams"]) == ["openai"]
    limited = written(tmp_path, deployments(f"{same}, rpm: 5", f"{other}, rpm: 5", f"{same}, rpm: 5"))
    assert list(limited.config["upstreams"]) == ["openai-a", "openai-b"]


def test_a_secret_gets_a_name_that_means_nothing_else(tmp_path: Path) -> None:
    text = deployments(
        "model: openai/a, api_key: sk-first",
        "model: openai/b, api_key: sk-second",
        "model: openai/c, api_key: os.environ/OPENAI_KEY",
        "model: openai/d, api_key: sk-first",
        "model: openai/e",
    )
    result = written(tmp_path, text)
    keys = {name: one["api_key"] for name, one in result.config["upstreams"].items()}
    assert keys == {
        "openai": "${OPENAI_KEY_2}",
        "openai-2": "${OPENAI_KEY_3}",
        "openai-3": "${OPENAI_KEY}",
        "openai-4": "${OPENAI_API_KEY}",
    }
    assert "sk-" not in result.text + str(result.notes)


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ("model: bedrock/x", "model"),
        ("model: azure_ai/x, api_base: 'https://x.azure.com'", "model"),
        ("model: hosted_vllmx/x", "model"),
        ("model: gemini-pro", "model"),
        ("model: openai_like/x", "api_base"),
        ("model: openai/x, api_base: 'localhost:8000'", "api_base"),
        ("model: openai/x, api_base: 'http://u:pw-canary@h/v1'", "api_base"),
    ],
)
def test_a_deployment_that_cannot_be_served_is_noted_and_nothing_is_written(
    tmp_path: Path, params: str, place: str
) -> None:
    result = written(tmp_path, deployments(params))
    assert (result.status, result.text) == (2, "")
    assert list(result.notes) == [f"model_list[0].litellm_params.{place}"]
    assert "pw-canary" not in str(result.notes)


@pytest.mark.parametrize(
    ("model", "custom", "expected"),
    [
        ("openai/gpt-4o", None, ("openai", "gpt-4o")),
        ("openrouter/openai/gpt-4o", None, ("openrouter", "openai/gpt-4o")),
        ("gpt-4o", None, ("openai", "gpt-4o")),
        ("claude-3-haiku", None, ("anthropic", "claude-3-haiku")),
        ("meta-llama/Llama-3", None, (None, "meta-llama/Llama-3")),
        ("meta-llama/Llama-3", "openai", ("openai", "meta-llama/Llama-3")),
        ("openai/gpt-4o", "openai", ("openai", "gpt-4o")),
    ],
)
def test_providers_by_name(model: str, custom: str | None, expected: tuple[str | None, str]) -> None:
    assert split(model, custom) == expected


def test_no_provider_is_both_known_and_not() -> None:
    assert not PROVIDERS.keys() & UNSUPPORTED.keys()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "model_list: 7\n",
        "model_list: [7, {model_name: a}, {model_name: a, litellm_params: {model: [1]}}]\n",
        "upstreams: {a: {base_url: 'http://h'}}\n",
        "model_list: !!python/object:os.system [x]\n",
    ],
)
def test_another_file_is_reported_without_a_traceback(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    assert main(["import-litellm", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err != "") == ("", True)


def test_odd_values_are_noted_and_the_rest_is_converted(tmp_path: Path) -> None:
    rest = (
        "router_settings: [1]\n"
        "litellm_settings: {num_retries: many, cache: true, cache_params: {type: disk, ttl: -1},\n"
        "  fallbacks: [7, {m: 7}]}\n"
        "general_settings: {max_request_size_mb: 0}\n"
        "credential_list: [7]\n"
    )
    result = written(tmp_path, deployments("model: openai/a, timeout: 0, extra_headers: 7", rest=rest))
    assert result.load(tmp_path).problems == []
    assert result.notes.keys() == {
        "router_settings",
        "model_list[0].litellm_params.timeout",
        "model_list[0].litellm_params.extra_headers",
        "litellm_settings.num_retries",
        "litellm_settings.cache",
        "litellm_settings.cache_params.type",
        "litellm_settings.cache_params.ttl",
        "litellm_settings.fallbacks[1].m",
        "general_settings.max_request_size_mb",
    }


def test_out_writes_a_new_file_and_never_overwrites(tmp_path: Path) -> None:
    source, target = tmp_path / "config.yaml", tmp_path / "sluice.yaml"
    source.write_text(deployments("model: openai/a"), encoding="utf-8")
    command = [sys.executable, "-m", "gateway", "import-litellm", str(source), "--out", str(target)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"converted: 1 upstream, 1 model; needs OPENAI_API_KEY\n")
    before = target.read_text(encoding="utf-8")
    again = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, check=False)
    assert (again.returncode, again.stderr) == (1, f"sluice: {target}: File exists\n".encode())
    assert target.read_text(encoding="utf-8") == before
    checked = [sys.executable, "-m", "gateway", "check", "--config", str(target)]
    environ = {**os.environ, "OPENAI_API_KEY": "sk-1"}
    check = subprocess.run(checked, cwd=ROOT, env=environ, capture_output=True, check=True)
    assert check.stdout == b"ok: 1 upstream, 1 model, 0 keys\n"
