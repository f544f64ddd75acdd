"""Typical configs of LiteLLM: each becomes one that passes its check; secrets stay out, losses are noted."""

import re
from pathlib import Path

import pytest
from imported import CONFIGS, imported, shipped

by_name = pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)


@by_name
def test_the_result_passes_its_check(file: Path, tmp_path: Path) -> None:
    result = imported(file)
    loaded = result.load(tmp_path)
    assert (result.status, loaded.problems, loaded.warnings) == (0, [], [])


@by_name
def test_no_literal_secret_is_written_or_printed(file: Path) -> None:
    canaries = re.findall(r"[a-z-]+-canary-?\d*", file.read_text(encoding="utf-8"))
    result = imported(file)
    shown = result.text + "".join(f"{place}: {said}\n" for place, said in result.notes.items())
    assert [canary for canary in canaries if canary in shown] == []


@by_name
def test_every_part_says_where_it_came_from(file: Path) -> None:
    result = imported(file)
    entries = [*result.config["upstreams"], *result.config["models"]]
    assert len(re.findall(r"^  # from \w", result.text, re.MULTILINE)) == len(entries)
    sections = result.config.keys() - {"upstreams", "models"}
    assert len(re.findall(r"^# from \w", result.text, re.MULTILINE)) == len(sections)


def test_there_are_a_dozen() -> None:
    assert len(CONFIGS) >= 12
    assert any("canary" in file.read_text(encoding="utf-8") for file in CONFIGS)


def test_simple() -> None:
    result = shipped("simple")
    assert result.config == {
        "upstreams": {
            "openai": {"base_url": "https://api.openai.com/v1", "api_key": "${OPENAI_API_KEY}"},
            "anthropic": {"base_url": "https://api.anthropic.com/v1", "api_key": "${ANTHROPIC_API_KEY}"},
        },
        "models": {
            "gpt-4o": {"candidates": [{"upstream": "openai"}]},
            "claude": {"candidates": [{"upstream": "anthropic", "model": "claude-sonnet-4-5"}]},
        },
    }
    assert (result.notes, result.needs) == ({}, ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"])


def test_load_balanced() -> None:
    result = shipped("load_balanced")
    upstreams, models = result.config["upstreams"], result.config["models"]
    addresses = [one["base_url"] for one in upstreams.values()][:3]
    assert addresses == ["http://10.0.0.1:8001/v1", "http://10.0.0.2:8002/v1", "http://10.0.0.3:8003/v1"]
    assert [one.get("rate") for one in upstreams.values()] == [{"rpm": n} for n in (60, 600, 60000, 200, 100)]
    assert {one["kind"] for one in list(upstreams.values())[:3]} == {"vllm"}
    for one in upstreams.values():
        assert (one["timeouts"], one["breaker"]) == ({"total": "30s"}, {"failures": 4})
    zephyr = models["zephyr-beta"]
    assert [one.get("weight", 1) for one in zephyr["candidates"]] == [1, 10, 1000]
    assert (zephyr["route"], zephyr["on_overflow"]) == ("weighted", "fallback")
    assert zephyr["fallbacks"] == ["gpt-3.5-turbo", "gpt-3.5-turbo-16k"]
    assert models["gpt-4"] == {
        "candidates": [{"upstream": "openai-gpt-3.5-turbo", "model": "gpt-3.5-turbo"}],
        "fallbacks": ["gpt-3.5-turbo-16k"],
        "on_overflow": "fallback",
    }
    assert result.config["retry"] == {"attempts": 3}  # the router's word goes before litellm_settings'
    assert result.config["redis"] == {
        "url": "redis://${REDIS_HOST}:1992",
        "password": "${REDIS_PASSWORD}",
    }
    assert {upstreams[name]["api_key"] for name in list(upstreams)[3:]} == {"${OPENAI_KEY}"}
    assert "OPENAI_KEY" in result.notes["model_list[3].litellm_params.api_key"]


def test_azure_and_bedrock_are_noted_and_left_out() -> None:
    result = shipped("azure_and_openai")
    assert "openai.azure.com/openai/v1" in result.notes["model_list[0].litellm_params.model"]
    assert "OpenAI's API" in result.notes["model_list[2].litellm_params.model"]
    assert list(result.config["models"]) == ["gpt-4-team1"]
    assert len(result.config["models"]["gpt-4-team1"]["candidates"]) == 1


def test_orders() -> None:
    result = shipped("ordered")
    chat = result.config["models"]["chat"]
    assert [one["model"] for one in chat["candidates"]] == ["deepseek-chat", "deepseek/deepseek-chat"]
    assert "route" not in chat
    assert result.config["upstreams"]["deepseek-deepseek-chat"] == {
        "base_url": "https://api.deepseek.com/v1",
        "api_key": "${DEEPSEEK_API_KEY}",
        "max_concurrency": 10,
        "timeouts": {"first_byte": "60s", "total": "300s"},
    }


def test_costs_windows_and_capabilities() -> None:
    result = shipped("costs")
    (qwen,) = result.config["models"]["qwen"]["candidates"]
    assert qwen["price"] == {"input": 0.15, "output": 0.6, "cached_input": 0.015}
    assert (qwen["context_window"], qwen["max_output"]) == (32768, 8192)
    assert qwen["capabilities"] == ["tools", "json_schema", "audio"]
    assert result.config["models"]["embed"]["candidates"][0]["price"] == {"input": 0.01, "output": 0}
    assert "api_key" not in result.config["upstreams"]["openai"]
    assert "audio_transcription" in result.notes["model_list[2].model_info.mode"]


def test_cache_keys_and_logs() -> None:
    result = shipped("cached")
    assert result.config["cache"] == {"enabled": True, "store": "redis", "ttl": "600s"}
    assert result.config["redis"] == {
        "url": "redis://${REDIS_HOST}:${REDIS_PORT}",
        "password": "${REDIS_PASSWORD}",
    }
    assert result.config["keys"] == [{"name": "master", "key": "${LITELLM_MASTER_KEY}"}]
    assert result.config["log"] == {"format": "json"}
    assert "virtual keys" in result.notes["general_settings.database_url"]
    assert "litellm_settings.success_callback" in result.notes


def test_a_cache_without_parameters_is_in_redis() -> None:
    assert shipped("cached_by_default").config["cache"] == {"enabled": True, "store": "redis"}


def test_local_engines() -> None:
    result = shipped("local_engines")
    upstreams = result.config["upstreams"]
    assert upstreams["ollama"] == {"base_url": "http://localhost:11434/v1", "kind": "llamacpp"}
    assert upstreams["vllm"] == {"base_url": "${HOSTED_VLLM_API_BASE}", "kind": "vllm"}
    assert upstreams["openai"] == {"base_url": "http://127.0.0.1:9000/v1", "api_key": "${OPENAI_KEY}"}
    assert result.config["models"]["llama"]["route"] == "least_loaded"
    assert "least_loaded is the nearest" in result.notes["router_settings.routing_strategy"]


def test_wildcards_and_other_sections_are_noted() -> None:
    result = shipped("wildcards")
    assert list(result.config["models"]) == ["gemini-flash"]
    assert result.notes.keys() == {
        "left out",
        "model_list[0].model_name",
        "model_list[1].model_name",
        "guardrails",
        "environment_variables.REDIS_HOST",
    }


def test_circles_are_cut() -> None:
    result = shipped("circles")
    fallbacks = {name: model.get("fallbacks") for name, model in result.config["models"].items()}
    assert fallbacks == {"a": ["b", "c"], "b": ["c"], "c": None}
    assert "circle" in result.notes["router_settings.fallbacks[1].b"]
    assert 'no converted model is named "d"' in result.notes["router_settings.fallbacks[0].a"]
    assert "8 characters" in result.notes["general_settings.master_key"]


def test_credentials() -> None:
    result = shipped("credentials")
    assert result.config["upstreams"]["openai"] == {
        "base_url": "https://eu.api.openai.com/v1",
        "api_key": "${TEAM_OPENAI_KEY}",
        "headers": {"OpenAI-Organization": "org-ours", "x-tenant": "ours", "X-Auth-Token": "${X_AUTH_TOKEN}"},
        "breaker": {"failures": 2, "open_for": "120s", "max_open_for": "120s"},
    }
    assert "bodies" in result.notes["model_list[0].litellm_params.temperature"]
    assert "nobody" in result.notes["model_list[1].litellm_params.litellm_credential_name"]


def test_names_with_a_dollar_stay_what_they_are(tmp_path: Path) -> None:
    result = shipped("fireworks")
    loaded = result.load(tmp_path)
    assert loaded.config is not None
    odd = loaded.config.models["${odd} name"]
    assert odd.candidates[0].model == "accounts/fireworks/models/llama-v3p1-8b-instruct"
    assert loaded.config.models["deep"].fallbacks == ("${odd} name",)
    assert loaded.config.server.max_body == 8 * 1024 * 1024
    assert {one.max_concurrency for one in loaded.config.upstreams.values()} == {20}
