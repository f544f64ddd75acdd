"""Options and the plans they make; prompts that never repeat."""

from itertools import islice
from random import Random
from typing import Any

import pytest
from planned import made

from gateway.cli.bench.prompts import prompts
from gateway.cli.main import main


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1"),
        ("https://host/api/v1/chat/completions", "https://host/api/v1"),
        ("https://host/v1/embeddings", "https://host/v1"),
    ],
)
def test_the_base_url(url: str, base: str) -> None:
    assert [target.url for target in made(url).targets] == [base]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"requests": 100, "duration": None, "concurrency": 8, "rate": None, "stream": True}),
        (["--duration", "10s"], {"requests": None, "duration": 10.0}),
        (["--rate", "2.5"], {"rate": 2.5, "arrivals": "poisson"}),
        (["--rate", "2.5", "--arrivals", "constant"], {"rate": 2.5, "arrivals": "constant"}),
        (["--prompt-tokens", "7"], {"prompt_tokens": (7, 7)}),
        (["--prompt-tokens", "128,1024"], {"prompt_tokens": (128, 1024)}),
        (["--no-stream"], {"stream": False}),
        (["--endpoint", "embeddings"], {"stream": False, "endpoint": "embeddings"}),
        (["--seed", "5"], {"seed": 5}),
    ],
)
def test_the_plan(words: list[str], expected: dict[str, Any]) -> None:
    found = made("http://h/v1", *words)
    assert {name: getattr(found, name) for name in expected} == expected


def test_the_key_is_given_or_of_the_environment_and_never_printed() -> None:
    assert made("http://h").targets[0].key is None
    for found in (
        made("http://h", environ={"OPENAI_API_KEY": "sk-canary"}),
        made("http://h", "--key", "sk-canary", environ={"OPENAI_API_KEY": "sk-other"}),
    ):
        key = found.targets[0].key
        assert key is not None
        assert key.reveal() == "sk-canary"
        assert "canary" not in repr(found)


def test_models_and_keys_are_for_all_or_one_for_each() -> None:
    both = ["http://a/v1", "http://b/v1"]
    assert [target.model for target in made(*both, "--model", "m").targets] == ["m", "m"]
    found = made(*both, "--model", "m", "--model", "n", "--key", "sk-1", "--key", "sk-2").targets
    assert [(one.model, one.key.reveal() if one.key else "") for one in found] == [
        ("m", "sk-1"),
        ("n", "sk-2"),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        ["http://a", "http://b", "http://c"],
        ["http://a", "--model", "n"],
        ["http://a", "--key", "k-1", "--key", "k-2"],
        ["ftp://a"],
        ["http://u:p@a"],
        ["http://a:99999"],
        ["http://["],
        ["http://a", "--rate", "nan"],
        ["http://a", "--rate", "1", "--concurrency", "2"],
        ["http://a", "--arrivals", "constant"],
        ["http://a", "--rate", "1", "--arrivals", "uniform"],
        ["http://a", "--requests", "0"],
        ["http://a", "--requests", "1", "--duration", "1s"],
        ["http://a", "--duration", "0s"],
        ["http://a", "--duration", "soon"],
        ["http://a", "--prompt-tokens", "9,3"],
        ["http://a", "--endpoint", "images"],
    ],
)
def test_wrong_usage_is_one_line_and_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["bench", *wrong, "--model", "m"])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else -1
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n"), err.startswith("sluice bench: ")) == (2, "", 1, True)


def test_prompts_differ_and_come_again_with_the_same_seed() -> None:
    first = list(islice(prompts(Random("1"), (5, 9)), 500))
    assert len(set(first)) == 500
    assert {len(prompt.split()) for prompt in first} == {5, 6, 7, 8, 9}
    assert first == list(islice(prompts(Random("1"), (5, 9)), 500))
    assert not set(first) & set(islice(prompts(Random("2"), (5, 9)), 500))
