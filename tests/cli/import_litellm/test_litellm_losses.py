"""What moving from LiteLLM loses is named, and virtual keys come along."""

import io
from pathlib import Path

import pytest
from imported import Imported, written

from gateway.cli.import_litellm.run import run

ONE = "model_list:\n  - {model_name: chat, litellm_params: {model: openai/gpt-5-mini}}\n"


def entries(*params: str, rest: str = "") -> str:
    lines = [f"  - {{model_name: chat, litellm_params: {{{one}}}}}\n" for one in params]
    return f"model_list:\n{''.join(lines)}{rest}"


def models_sent(result: Imported) -> list[str]:
    return [one["model"] for one in result.config["models"]["chat"]["candidates"]]


def test_entries_that_are_left_out_are_listed(tmp_path: Path) -> None:
    more = (
        "  - {model_name: claude, litellm_params: {model: bedrock/claude}}\n"
        "  - {model_name: '*', litellm_params: {model: 'openai/*'}}\n"
        "  - {model_name: claude, litellm_params: {model: vertex_ai/claude}}\n"
        "  - {litellm_params: {model: openai/x}}\n"
    )
    result = written(tmp_path, ONE + more)
    assert result.notes["left out"] == "claude (2 times), *, None"
    assert "left out" not in written(tmp_path, ONE).notes
    assert "point an upstream at LiteLLM's address" in result.notes["model_list[1].litellm_params.model"]


def test_what_the_cache_loses_is_said(tmp_path: Path) -> None:
    result = written(tmp_path, ONE + "litellm_settings: {cache: true, cache_params: {type: local}}\n")
    assert "requests with temperature: 0" in result.notes["litellm_settings.cache"]
    assert "litellm_settings.cache" not in written(tmp_path, ONE + "litellm_settings: {cache: false}\n").notes


@pytest.mark.parametrize(
    ("tags", "kept"),
    [
        (("[free]", "[paid]"), ["a"]),
        (("[free]", "[free]"), ["a", "b"]),
        (("[paid]", "[default]"), ["b"]),
        (("[paid]", None), ["b"]),
        ((None, "[paid]", None), ["a", "c"]),
        ((None, None), ["a", "b"]),
    ],
)
def test_deployments_with_other_tags_are_left_out(
    tmp_path: Path, tags: tuple[str | None, ...], kept: list[str]
) -> None:
    params = [
        f"model: openai/{name}" + (f", tags: {tag}" if tag else "") for name, tag in zip("abc", tags, strict=False)
    ]
    result = written(tmp_path, entries(*params))
    assert models_sent(result) == kept
    lost = [note for place, note in result.notes.items() if place.endswith(".tags") and "left out" in note]
    assert len(lost) == len(tags) - len(kept)
    off = "router_settings: {enable_tag_filtering: false}\n"
    assert len(models_sent(written(tmp_path, entries(*params, rest=off)))) == len(tags)


@pytest.mark.parametrize(
    "model",
    [
        "cohere/rerank-english-v3.0",
        "openai/whisper-1",
        "openai/tts-1",
        "openai/dall-e-3",
        "openai/gpt-image-1",
        "openai/omni-moderation-latest",
        "openai/gpt-4o-realtime-preview",
        "openai/gpt-4o-transcribe",
    ],
)
def test_models_of_other_endpoints_are_left_out_without_a_mode(tmp_path: Path, model: str) -> None:
    result = written(tmp_path, ONE + f"  - {{model_name: other, litellm_params: {{model: {model}}}}}\n")
    assert list(result.config["models"]) == ["chat"]
    assert "which is not served" in result.notes["model_list[1].litellm_params.model"]
    assert result.notes["left out"] == "other"


@pytest.mark.parametrize(
    "settings",
    [
        "litellm_settings: {budget_duration: 30d, max_budget: 100}\n",
        "litellm_settings: {internal_user_budget_duration: 1mo}\n",
    ],
)
def test_budgets_by_month_are_named(tmp_path: Path, settings: str) -> None:
    notes = written(tmp_path, ONE + settings).notes
    assert any("none by week or month" in note for note in notes.values())


@pytest.mark.parametrize("provider", ["azure", "azure_ai"])
@pytest.mark.parametrize("end", ["", "/"])
def test_azure_with_its_v1_api_is_taken(tmp_path: Path, provider: str, end: str) -> None:
    base = f"https://res.services.ai.azure.com/openai/v1{end}"
    result = written(tmp_path, entries(f"model: {provider}/gpt-5, api_base: '{base}', api_key: os.environ/AZ"))
    assert result.config["upstreams"][provider] == {"base_url": base.rstrip("/"), "api_key": "${AZ}"}
    assert models_sent(result) == ["gpt-5"]
    without = written(tmp_path, entries(f"model: {provider}/gpt-5, api_base: '{base}'"))
    assert without.needs == [f"{provider.upper()}_API_KEY"]
    other = entries(f"model: {provider}/gpt-5, api_base: 'https://res.openai.azure.com'")
    assert written(tmp_path, other).status == 2


@pytest.mark.parametrize("password", ["P@ss/w0rd", "p@ss#1", "a?b[c", "a b", "%41", "plain"])
def test_any_password_of_redis_works(tmp_path: Path, password: str) -> None:
    rest = "router_settings: {redis_host: redis, redis_password: os.environ/REDIS_PASSWORD}\n"
    result = written(tmp_path, ONE + rest)
    file = tmp_path / "sluice.yaml"
    loaded = result.load(tmp_path)
    assert loaded.problems == []
    assert file.exists()
    assert result.config["redis"] == {"url": "redis://redis:6379", "password": "${REDIS_PASSWORD}"}


A, B, C, D, E = (letter * 64 for letter in "abcde")
EXPORT = f"""\
token,key_alias,models,rpm_limit,tpm_limit,max_parallel_requests,max_budget,budget_duration
{A},team a,"{{gpt-5,""claude x""}}",60,100000,4,5,1d
{B},,{{}},,,,,
{C},team a,{{all-proxy-models}},,,,100,30d
{D},shadow,{{chat}},0,,,,
sk-not-hashed,e,{{}},,,,,
{E},everything,{{all-team-models}},,,,7,
"""


def with_keys(folder: Path, text: str) -> tuple[int, str, str]:
    config, keys = folder / "config.yaml", folder / "keys.csv"
    config.write_text(ONE, encoding="utf-8")
    keys.write_text(text, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    status = run(str(config), None, out=out, err=err, keys_file=str(keys))
    return status, out.getvalue(), err.getvalue()


def test_virtual_keys_come_along(tmp_path: Path) -> None:
    import yaml

    status, out, err = with_keys(tmp_path, EXPORT)
    assert status == 0
    assert yaml.safe_load(out)["keys"] == [
        {
            "name": "team a",
            "key_sha256": A,
            "models": ["gpt-5", "claude x"],
            "limits": {"rpm": 60, "tpm": 100000, "concurrency": 4, "usd_per_day": 5},
        },
        {"name": "key-bbbbbbbb", "key_sha256": B},
        {"name": "team a-2", "key_sha256": C},
        {"name": "everything", "key_sha256": E, "models": ["no-model"]},
    ]
    assert err.splitlines()[:-1] == [
        "keys line 4: a budget of 100 USD for 30d is lost: budgets are by day, limits.usd_per_day",
        "keys line 5: rpm_limit is 0, which lets nothing pass; left out",
        "keys line 6: token is no SHA-256, as LiteLLM stores it; left out",
        "keys line 7: all-team-models: there are no teams; list the models in keys.models",
        "keys line 7: a budget of 7 USD for all time is lost: budgets are by day, limits.usd_per_day",
    ]
    assert "sk-not-hashed" not in out + err


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "token\nx\n"])
def test_another_file_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    status, out, err = with_keys(tmp_path, text)
    assert (status, out) == (2, "")
    assert "no column" in err


PASSWORD = {"password": "${PW}"}


@pytest.mark.parametrize(
    ("router", "cache", "expected"),
    [
        ("{redis_host: r}", "{host: r, password: os.environ/PW}", {"url": "redis://r:6379", **PASSWORD}),
        ("{redis_host: r, redis_password: os.environ/PW}", "{host: r}", {"url": "redis://r:6379", **PASSWORD}),
        ("{redis_host: r}", "{host: r, username: u, password: os.environ/PW}", {"url": "redis://u@r:6379", **PASSWORD}),
        ("{redis_host: r}", "{host: other}", {"url": "redis://r:6379"}),
    ],
)  # fmt: skip
def test_the_router_and_the_cache_share_one_redis(
    tmp_path: Path, router: str, cache: str, expected: dict[str, str]
) -> None:
    rest = f"router_settings: {router}\nlitellm_settings: {{cache: true, cache_params: {cache}}}\n"
    result = written(tmp_path, ONE + rest)
    assert result.config["redis"] == expected
    noted = "litellm_settings.cache_params" in result.notes
    assert noted == ("other" in cache), "another Redis is named"
