"""Messages that say what to do: wrong YAML, LiteLLM's file, names that read like patterns, prices per token."""

import pytest
from sample_configs import MINIMAL

WRONG_YAML = {
    "a field between two levels": (
        "upstreams:\n    a: {x: 1}\n   b: {x: 2}\n",
        "line 3: indented by 3; the lines beside it (line 2) by 4",
    ),
    "a field below a value": (
        "server:\n  port: 1\n    host: x\n",
        "line 3: indented by 4; the lines beside it (line 2) by 2",
    ),
    "a field below a value, deeper": (
        "server:\n  drain:\n    delay: 1\n      timeout: 2\n",
        "line 4: indented by 6; the lines beside it (line 3) by 4",
    ),
    "a list item": (
        "models:\n  a:\n    candidates:\n      - upstream: x\n     - upstream: y\n",
        "line 5: indented by 5; the lines beside it (line 4) by 6",
    ),
    "a field of a list item, too far left": (
        "keys:\n  - name: a\n   key: b\n",
        "line 3: indented by 3; the lines beside it (line 2) by 4",
    ),
    "a field of a list item, too far right": (
        "keys:\n  - name: a\n     key: b\n",
        "line 3: indented by 5; the lines beside it (line 2) by 4",
    ),
    "a comment and an empty line between": (
        "server:\n  port: 1\n# note\n\n   host: x\n",
        "line 5: indented by 3; the lines beside it (line 2) by 2",
    ),
    "the first section": (
        "  server:\n    port: 1\nadmin:\n  port: 2\n",
        "line 3: indented by 0; the lines beside it (line 1) by 2",
    ),
    "a field beside list items": (
        "keys:\n  - name: a\n  name: b\n",
        "line 3, column 3: a field beside list items, which begin with -",
    ),
    "no colon": (
        "server:\n  port 1\n  host: x\n",
        "line 2: a field without a colon and a space after its name; write port: value",
    ),
    "no space after the colon": (
        "server:\n  port:1\n  host: x\n",
        "line 2: a field without a colon and a space after its name; write port: value",
    ),
    "a secret without its name": (
        "keys:\n  - sk-very-secret-key\n    name: x\n",
        "line 2: a field without a colon and a space after its name",
    ),
    "a tab": ("server:\n\tport: 1\n", "line 2, column 1: a tab; indent with spaces"),
    "an open quote": (
        "server:\n  host: 'x\n  port: 1\n",
        "line 2, column 9: a quote opens here and is not closed",
    ),
    "an open brace": ("server: {port: 1\nadmin: {}\n", "line 1, column 9: this { is not closed by line 2"),
    "an open bracket": ("keys: [a, b\nadmin: {}\n", "line 1, column 7: this [ is not closed by line 2"),
    "a character that begins no text": (
        "server:\n  host: @x\n",
        "line 2, column 9: text that begins with this character needs quotes",
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG_YAML.values(), ids=WRONG_YAML)
def test_wrong_yaml_is_explained(load_text, text, message):
    assert [problem.message for problem in load_text(text).problems] == [message]


def test_a_config_of_litellm_is_named(load_text, tmp_path):
    loaded = load_text("model_list: [{model_name: a, litellm_params: {model: b}}]\nlitellm_settings: {}\n")
    file = tmp_path / "sluice.yaml"
    assert [str(problem) for problem in loaded.problems] == [
        f"{file}: this is LiteLLM's config; convert it: sluice import-litellm {file}"
    ]


@pytest.mark.parametrize("name", ["*", "gpt-*", "openai/*", "gpt-?", "gpt-[45]"])
def test_a_model_named_like_a_pattern_is_warned_of(good, name):
    public = good(MINIMAL.replace("small:", f'"{name}":')).warnings
    assert public == [
        f'models.{name}: "{name}" is a plain name here, not a pattern, and matches no other name; '
        "patterns of names that clients ask for go into aliases"
    ]
    sent = good(MINIMAL.replace("local}]", f'local, model: "{name}"}}]')).warnings
    assert sent == [f'models.small.candidates[0].model: "{name}" is sent as it is, not a pattern']


def test_a_key_that_names_an_alias_is_told_the_model(good):
    text = MINIMAL.replace("]}", "], aliases: [fast, 'gpt-*']}") + "keys: [{name: a, key: abcdefgh, models: [fast]}]\n"
    assert good(text).warnings == ['keys[0].models[0]: "fast" matches no model; it is an alias of "small"']


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        (
            "input: 0.00000025, output: 2",
            ["input: 0.00000025 USD is for a million tokens; for one token? write 0.25"],
        ),
        (
            "input: 1, output: 0.000002",
            ["output: 0.000002 USD is for a million tokens; for one token? write 2"],
        ),
        (
            "input: 1, output: 2, cached_input: 0.00000003, cache_write: 0.000003, cache_write_long: 0.00001",
            [
                "cached_input: 0.00000003 USD is for a million tokens; for one token? write 0.03",
                "cache_write: 0.000003 USD is for a million tokens; for one token? write 3",
                "cache_write_long: 0.00001 USD is for a million tokens; for one token? write 10",
            ],
        ),
        ("input: 0, output: 0", []),
        ("input: 0.0001, output: 0.01", []),
    ],
)
def test_a_price_for_one_token_is_warned_of(good, price, expected):
    text = MINIMAL.replace("local}]", f"local, price: {{{price}}}}}]")
    assert good(text).warnings == [f"models.small.candidates[0].price.{line}" for line in expected]


def test_a_baseline_for_one_token_is_warned_of(good):
    text = MINIMAL.replace("]}", "], baseline: {price: {input: 0.00001, output: 10}}}")
    assert good(text).warnings == [
        "models.small.baseline.price.input: 0.00001 USD is for a million tokens; for one token? write 10"
    ]


@pytest.mark.parametrize(
    ("written", "better"), [("2.5e-07", "0.25"), ("0.0000000375", "0.0375"), ("1E-5", "10"), ("3e-16", None)]
)
def test_a_price_for_one_token_that_is_no_amount_says_so(problems_of, written, better):
    text = MINIMAL.replace("local}]", f"local, price: {{input: {written}, output: 2}}}}]")
    message = problems_of(text)["models.small.candidates[0].price.input"]
    assert "an amount is a plain decimal number of USD" in message
    assert ("prices are for a million tokens" in message) == (better is not None)
    assert better is None or f"({better})" in message
