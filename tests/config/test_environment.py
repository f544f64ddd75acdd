"""Values from the environment and from the `.env` beside the config; upstreams left out for want of a key."""

import pytest
from sample_configs import MINIMAL

TWO = """\
upstreams:
  paid: {base_url: "https://h.example/v1", api_key: "${PAID_KEY:-}"}
  local: {base_url: "http://127.0.0.1:8000/v1"}
models:
  both: {candidates: [{upstream: paid}, {upstream: local}]}
  paid: {candidates: [{upstream: paid}], fallbacks: [both]}
  local: {candidates: [{upstream: local}], fallbacks: [paid]}
"""


def paths(loaded):
    return {problem.path: problem.message for problem in loaded.problems}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "value"),
        ("os.environ/NAME", "value"),
        ("a-${NAME}-${OTHER}", "a-value-second"),
        ("${NAME:-default}", "value"),
        ("${MISSING:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${MISSING:-a:-b}", "a:-b"),
        ("$${NAME}", "${NAME}"),
        ("$NAME", "$NAME"),
        ("x os.environ/NAME", "x os.environ/NAME"),
    ],
)
def test_references_are_filled_in(good, text, value):
    environ = {"NAME": "value", "OTHER": "second", "EMPTY": ""}
    config = good(MINIMAL + f"usage: {{path: '{text}'}}\n", environ).config
    assert config.usage.path == value


def test_numbers_and_switches_may_come_from_the_environment(good):
    environ = {"PORT": "9000", "RPM": "null", "BEAT": "off"}
    text = MINIMAL + "server: {port: '${PORT}', heartbeat: '${BEAT}'}\n"
    config = good(text + "keys: [{name: a, key: abcdefgh, limits: {rpm: '${RPM}'}}]\n", environ).config
    assert (config.server.port, config.server.heartbeat, config.keys[0].limits.rpm) == (9000, None, None)


def test_a_value_is_not_filled_in_twice(good):
    assert good(MINIMAL + "usage: {path: '${A}'}\n", {"A": "${B}"}).config.usage.path == "${B}"


def test_every_unset_variable_is_named_with_its_place(told):
    found = told(
        MINIMAL
        + "keys: [{name: a, key: '${KEY_A}'}, {name: b, key: os.environ/KEY_B}]\nserver: {port: '${PORT}'}\n"
        "usage: ${ALL}\nadmin: {host: '${}', port: '${x'}\n"
        "log: {level: 'os.environ/a b', format: '${A:-${B}}'}\n"
    )
    assert found.keys() == {
        "keys[0].key", "keys[1].key", "server.port", "usage",
        "admin.host", "admin.port", "log.level", "log.format",
    }  # fmt: skip
    assert found["keys[0].key"] == "environment variable KEY_A is not set"
    assert found["keys[1].key"] == "environment variable KEY_B is not set"
    assert "${NAME:-default}" in found["admin.host"]
    assert "such as os.environ/OPENAI_API_KEY" in found["log.level"]


def test_dotenv_beside_the_config_is_read_and_the_environment_wins(good, tmp_path):
    (tmp_path / ".env").write_text(
        "# keys\nexport FILE_ONLY='from $file'\nBOTH=file\nBARE\n", encoding="utf-8"
    )
    text = MINIMAL + "usage: {path: '${FILE_ONLY} ${BOTH}'}\n"
    assert good(text, {"BOTH": "real"}).config.usage.path == "from $file real"


def test_a_dotenv_that_is_no_text_is_a_problem(load_text, tmp_path):
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    (problem,) = load_text(MINIMAL).problems
    assert problem.path.endswith(".env")
    assert "not UTF-8" in problem.message


def test_a_variable_that_is_no_text_is_a_problem(told):
    assert told(MINIMAL + "usage: {path: '${A}'}\n", {"A": "\udcff"}).keys() == {"usage.path"}


def test_a_blank_key_leaves_its_upstream_out(good):
    loaded = good(TWO)
    assert loaded.warnings == [
        'upstream "paid" is left out, because its api_key is empty',
        'model "paid" is left out, because all its upstreams are',
    ]
    assert list(loaded.config.upstreams) == ["local"]
    assert list(loaded.config.models) == ["both", "local"]
    assert [one.upstream for one in loaded.config.models["both"].candidates] == ["local"]
    assert loaded.config.models["local"].fallbacks == ()


def test_a_key_from_the_environment_keeps_its_upstream(good):
    loaded = good(TWO, {"PAID_KEY": "k"})
    assert loaded.warnings == []
    assert loaded.config.upstreams["paid"].api_key.reveal() == "k"


def test_mistakes_in_an_upstream_that_is_left_out_are_told(load_text):
    loaded = load_text(
        TWO.replace("https://h.example/v1", "h.example").replace("upstream: local}]", "upstream: x}]")
    )
    assert paths(loaded).keys() == {
        "upstreams.paid.base_url",
        "models.both.candidates[1].upstream",
        "models.local.candidates[0].upstream",
    }


def test_nothing_left_is_a_problem(load_text):
    text = MINIMAL.replace('/v1"', '/v1", api_key: "${K:-}"')
    assert paths(load_text(text)) == {
        "models": "none is left, because the api_key of every upstream is empty"
    }


@pytest.mark.parametrize(("written", "environ"), [("''", {}), ("'${K}'", {"K": ""})])
def test_an_empty_key_without_a_default_is_a_mistake(load_text, written, environ):
    text = MINIMAL.replace('/v1"', f'/v1", api_key: {written}')
    assert "must not be empty" in paths(load_text(text, environ))["upstreams.local.api_key"]
