"""Files that are not configs: each is one clear problem, whatever its bytes."""

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_configs import FULL, MINIMAL

from gateway.config.load import load
from gateway.config.model import Config, ModelConfig, UpstreamConfig

WORDS = [
    "server",
    "upstreams",
    "models",
    "keys",
    "key",
    "port",
    "candidates",
    "local",
    "null",
    "off",
    "~",
    "1",
]
MARKS = [
    ": ",
    "- ",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "'",
    '"',
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "${",
    "|\n",
    "? ",
]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"\xff\xfe", "not UTF-8 text (byte 1)"),
        (b"a: \x00", "line 1: a character that YAML does not allow"),
        (b"a" * (1024 * 1024 + 1), "larger than 1048576 bytes"),
        (b"a: b: c", "line 1, column 5: "),
        (b"upstreams:\n\tlocal: x", "line 2, column 1: a tab; indent with spaces"),
        (b"a: {b: ${C}}", 'inside braces, ${NAME} needs quotes: "${NAME}"'),
        (b"a: [1", "line 1, column 6: "),
        (b"a: *nowhere", "line 1, column 4: text that begins with * is an alias without its anchor"),
        (b"a: !x!y z", "line 1, column 4: text that begins with ! is a tag"),
        (b"a: &x 1\nb: &x 2", "line 2, column 4: "),
        (b"a: 1\n---\na: 2", "a config is one document"),
        (b'a: "\\U00110000"', "out of range"),
        (b"%YAML 1." + b"1" * 5000 + b"\n---\na: b", "out of range"),
        (b"[" * 5_000, "nested too deeply"),
        (b"a: &a [*a]", "nested more than 32 levels deep"),
        (b"a: &a {b: *a}", "nested more than 32 levels deep"),
        (b"x: &x {a: b}\ny: {<<: [" + b", ".join([b"*x"] * 101) + b"]}", "more than 100 mappings merged"),
    ],
)
def test_an_unreadable_file_is_one_problem(load_text, content, words):
    loaded = load_text(content)
    (problem,) = loaded.problems
    assert problem.path.endswith("sluice.yaml")
    assert words in problem.message


def test_ten_lines_of_anchors_do_not_become_a_billion_values(load_text):
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]\n" for i in range(1, 10)]
    (problem,) = load_text("l0: &l0 [x, x]\n" + "".join(levels)).problems
    assert "more than 100000 values" in problem.message


def test_merged_mappings_do_not_multiply(load_text):
    levels = [f"l{i}: &l{i} {{<<: [{', '.join([f'*l{i - 1}'] * 100)}]}}\n" for i in range(1, 12)]
    loaded = load_text(MINIMAL + "l0: &l0 {x: y}\n" + "".join(levels))
    assert {problem.message.split(";")[0] for problem in loaded.problems} == {"unknown field"}


@pytest.mark.parametrize("text", ["text", "[1, 2]", "5"])
def test_a_document_without_fields_is_one_problem(load_text, text):
    (problem,) = load_text(text).problems
    assert problem.message == "contains no fields; it needs upstreams and models"


def test_anchors_and_merge_keys_work(good):
    config = good(
        "upstreams: {u: &u {base_url: 'http://a/v1', kind: vllm}, v: {<<: *u, base_url: 'http://b/v1'}}\n"
        "models: {m: {candidates: [{upstream: v}]}}\n"
    ).config
    assert (config.upstreams["v"].kind, config.upstreams["v"].base_url) == ("vllm", "http://b/v1")


def test_a_byte_order_mark_is_accepted(load_text):
    assert load_text(b"\xef\xbb\xbf" + MINIMAL.encode()).config is not None


def test_tags_run_nothing(load_text, tmp_path):
    made = tmp_path / "made"
    loaded = load_text(MINIMAL + f"usage: !!python/object/apply:pathlib.Path.touch ['{made}']\n")
    assert not made.exists()
    assert any("tags" in problem.message for problem in loaded.problems)


@pytest.mark.parametrize("name", ["missing.yaml", ".", "sub/missing.yaml", "nul\0.yaml", "n" * 300])
def test_a_path_without_a_file_is_one_problem(tmp_path, name):
    (problem,) = load(tmp_path / name, {}).problems
    assert problem.message.startswith(("no such file", "is a directory", "cannot be read"))
    assert str(problem).isprintable()


def check(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    loaded = load(path, {"A": "b"})
    assert (loaded.config is None) == bool(loaded.problems)
    for problem in loaded.problems:
        assert "\n" not in str(problem)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.binary(max_size=200))
def test_any_bytes_give_problems_and_no_traceback(tmp_path, content):
    check(tmp_path / "any.yaml", content)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.sampled_from(WORDS + MARKS), max_size=30).map("".join))
def test_any_yaml_like_text_gives_problems_and_no_traceback(tmp_path, content):
    check(tmp_path / "any.yaml", content.encode())


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, len(FULL)), st.integers(0, 30), st.sampled_from([*WORDS, *MARKS, "", "\ud800", "é"]))
def test_any_cut_in_a_whole_config_gives_problems_or_a_config(tmp_path, start, length, put):
    cut = FULL[:start] + put + FULL[start + length :]
    check(tmp_path / "any.yaml", cut.encode("utf-8", "surrogatepass"))


SHAPES = ["x", None, [], {}, ["x"], [None], {"x": None}, [{}], {"a": {}}]
PLACES = [
    *((section,) for section in Config.__struct_fields__),
    *(("upstreams", "local", field) for field in UpstreamConfig.__struct_fields__),
    *(("models", "small", field) for field in ModelConfig.__struct_fields__),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_in_any_place_gives_problems_or_a_config(tmp_path, shape):
    for *above, last in PLACES:
        document = yaml.safe_load(MINIMAL)
        section = document
        for name in above:
            section = section[name]
        section[last] = shape
        check(tmp_path / "any.yaml", yaml.safe_dump(document).encode())
