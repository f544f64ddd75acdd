"""Values from the environment and from the `.env` beside the config; upstreams left out for want of a key."""

import pytest
import yaml
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


def test_every_unset_variable_is_reported_with_its_path(problems_of, tmp_path):
    problems = problems_of(
        MINIMAL + "keys: [{name: a, key: '${KEY_A}'}, {name: b, key: os.environ/KEY_B}]\nserver: {port: '${PORT}'}\n"
        "usage: ${ALL}\nadmin: {host: '${}', port: '${x'}\n"
        "log: {level: 'os.environ/a b', format: '${A:-${B}}'}\n"
    )
    assert problems.keys() == {
        "keys[0].key", "keys[1].key", "server.port", "usage",
        "admin.host", "admin.port", "log.level", "log.format",
    }  # fmt: skip
    advice = f"export it, or put it into {tmp_path / '.env'}"
    assert problems["keys[0].key"] == f"environment variable KEY_A is not set; {advice}"
    assert problems["keys[1].key"] == f"environment variable KEY_B is not set; {advice}"
    assert "${NAME:-default}" in problems["admin.host"]
    assert "such as os.environ/OPENAI_API_KEY" in problems["log.level"]


def test_dotenv_beside_the_config_is_read_and_the_environment_wins(good, tmp_path):
    (tmp_path / ".env").write_text("# keys\nexport FILE_ONLY='from $file'\nBOTH=file\nBARE\n", encoding="utf-8")
    text = MINIMAL + "usage: {path: '${FILE_ONLY} ${BOTH}'}\n"
    assert good(text, {"BOTH": "real"}).config.usage.path == "from $file real"


def test_a_dotenv_that_is_no_text_is_a_problem(load_text, tmp_path):
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    (problem,) = load_text(MINIMAL).problems
    assert problem.path.endswith(".env")
    assert "not UTF-8" in problem.message


def test_a_variable_that_is_not_text_is_a_problem(problems_of):
    assert problems_of(MINIMAL + "usage: {path: '${A}'}\n", {"A": "\udcff"}).keys() == {"usage.path"}


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


def test_mistakes_in_an_upstream_that_is_left_out_are_reported(load_text):
    loaded = load_text(TWO.replace("https://h.example/v1", "h.example").replace("upstream: local}]", "upstream: x}]"))
    assert paths(loaded).keys() == {
        "upstreams.paid.base_url",
        "models.both.candidates[1].upstream",
        "models.local.candidates[0].upstream",
    }


def test_nothing_left_is_a_problem(load_text):
    text = MINIMAL.replace('/v1"', '/v1", api_key: "${K:-}"')
    assert paths(load_text(text)) == {"models": "none is left, because the api_key of every upstream is empty"}


def test_an_empty_key_is_a_mistake(load_text):
    text = MINIMAL.replace('/v1"', "/v1\", api_key: ''")
    assert "must not be empty" in paths(load_text(text))["upstreams.local.api_key"]


EMPTY = MINIMAL + "server: {port: '${PORT}', host: '${HOST}'}\nredis: {url: '${REDIS_URL}'}\n"


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        (MINIMAL.replace('/v1"', '/v1", api_key: "${K}"'), "upstreams.local.api_key", "K"),
        (MINIMAL.replace('/v1"', '/v1", api_key: os.environ/K'), "upstreams.local.api_key", "K"),
        (MINIMAL.replace("http://127.0.0.1:8000/v1", "${BASE}"), "upstreams.local.base_url", "BASE"),
        (MINIMAL.replace("127.0.0.1", "${HOST}"), "upstreams.local.base_url", "HOST"),
        (MINIMAL + "keys: [{name: a, key: '${KEY}'}]\n", "keys[0].key", "KEY"),
        (EMPTY, "server.port", "PORT"),
        (EMPTY, "server.host", "HOST"),
        (EMPTY, "redis.url", "REDIS_URL"),
        (MINIMAL.replace('/v1"', '/v1", headers: {x: "Bearer ${T}"}'), "upstreams.local.headers.x", "T"),
        (MINIMAL + "usage: {path: '${DB}'}\n", "usage.path", "DB"),
    ],
)
def test_an_empty_variable_is_named(load_text, tmp_path, text, path, name):
    names = ("K", "BASE", "HOST", "KEY", "PORT", "REDIS_URL", "T", "DB")
    (tmp_path / ".env").write_text("".join(f"{each}=\n" for each in names))
    message = paths(load_text(text))[path]
    assert message.startswith(f"environment variable {name} is empty; set it, or put it into {tmp_path}")
    assert ("${K:-}" in message) == (name == "K")


def test_an_empty_variable_in_a_header_is_warned_of(load_text):
    text = MINIMAL.replace('/v1"', '/v1", headers: {x-key: "${T}"}')
    loaded = load_text(text, {"T": ""})
    assert loaded.config is not None
    assert loaded.warnings == ["upstreams.local.headers.x-key: environment variable T is empty"]


@pytest.mark.parametrize(
    "written",
    [
        "$OPENAI_API_KEY",
        "$(OPENAI_API_KEY)",
        "%OPENAI_API_KEY%",
        "{{OPENAI_API_KEY}}",
        "{{ env.OPENAI_API_KEY }}",
        "env:OPENAI_API_KEY",
        "env.OPENAI_API_KEY",
        "process.env.OPENAI_API_KEY",
        "os.environ['OPENAI_API_KEY']",
        "{OPENAI_API_KEY}",
    ],
)
def test_another_way_to_name_a_variable_is_warned_of(load_text, written):
    text = MINIMAL.replace('/v1"', '/v1", api_key: ' + yaml.dump(written, default_style='"').strip())
    assert load_text(text).warnings == [
        f'upstreams.local.api_key: "{written}" is taken as it stands; write ${{OPENAI_API_KEY}}'
    ]


def test_a_variable_inside_a_text_is_warned_of(load_text):
    text = MINIMAL.replace('/v1"', '/v1", headers: {Authorization: "Bearer $UPSTREAM_TOKEN"}')
    loaded = load_text(text + "redis: {url: 'redis://:$REDIS_PASSWORD@127.0.0.1'}\n")
    assert loaded.warnings == [
        'upstreams.local.headers.Authorization: "$UPSTREAM_TOKEN" is taken as it stands; write ${UPSTREAM_TOKEN}',
        'redis.url: "$REDIS_PASSWORD" is taken as it stands; write ${REDIS_PASSWORD}',
    ]


def test_a_secret_that_only_looks_like_a_variable_is_not_shown(load_text):
    loaded = load_text(MINIMAL + "keys: [{name: a, key: $hunter2hunter2}]\n")
    assert loaded.warnings == ["keys[0].key: a text like $NAME is taken as it stands; write ${NAME}"]
    assert load_text(MINIMAL + "keys: [{name: a, key: 'pa$Word$X9'}]\n").warnings == []
