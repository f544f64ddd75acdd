"""Caps and weights of bodies, and the exact counts that the extra makes."""

import json
import logging

import pytest
from kit.weights import caps, measure, weigh

from gateway.core.endpoint import Endpoint
from gateway.core.tokens import OutputCaps
from gateway.usage import exact_tokens
from gateway.usage.estimator import Estimator
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.token_weight import MAX_TOKENS, TextWeight
from gateway.wire.request_body import read_fields

NOTHING = TextWeight(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
PIXELS = "iVBORw0KGgoAAAANSUhEUgAA" * 4000


def chat(content: object, **fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}], **fields}).encode()


def prompt(value: object, **fields: object) -> bytes:
    return json.dumps({"model": "m", "prompt": value, **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, OutputCaps(None, 1)),
        ({"max_tokens": 7}, OutputCaps(7, 1)),
        ({"max_completion_tokens": 9}, OutputCaps(9, 1)),
        ({"max_tokens": 1, "max_completion_tokens": 1000}, OutputCaps(1000, 1)),
        ({"max_tokens": 1000, "max_completion_tokens": 1}, OutputCaps(1000, 1)),
        ({"max_tokens": 7, "n": 3}, OutputCaps(21, 3)),
        ({"max_tokens": 7, "n": 3, "best_of": 5}, OutputCaps(35, 5)),
        ({"n": 3}, OutputCaps(None, 3)),
        ({"max_tokens": None, "n": None}, OutputCaps(None, 1)),
        ({"max_tokens": 0}, OutputCaps(None, 1)),
        ({"max_tokens": -5, "n": -1}, OutputCaps(None, 1)),
        ({"max_tokens": "many", "n": [2], "best_of": {}}, OutputCaps(None, 1)),
        ({"max_tokens": "12", "n": 2.0}, OutputCaps(24, 2)),
        ({"max_tokens": "nan"}, OutputCaps(None, 1)),
        ({"max_tokens": 10**30}, OutputCaps(MAX_TOKENS, 1)),
        ({"max_tokens": "9" * 30, "n": 10**30}, OutputCaps(MAX_TOKENS, MAX_TOKENS)),
    ],
)
def test_the_caps_of_a_chat(fields, expected):
    assert caps(chat("Hi", **fields), CHAT) == expected


@pytest.mark.parametrize(
    ("value", "fields", "expected"),
    [
        ("Hi", {}, OutputCaps(16, 1)),
        ("Hi", {"max_tokens": None}, OutputCaps(16, 1)),
        ("Hi", {"max_tokens": -1}, OutputCaps(None, 1)),
        ("Hi", {"max_tokens": 5, "echo": True}, OutputCaps(5, 1)),
        (["a", "b,c", "]["], {"max_tokens": 5}, OutputCaps(15, 3)),
        (["a", "b"], {"max_tokens": 5, "n": 2, "best_of": 3}, OutputCaps(30, 6)),
        ([1, 2, 3], {"max_tokens": 5}, OutputCaps(5, 1)),
        ([[1, 2], [3]], {"max_tokens": 5}, OutputCaps(10, 2)),
        ([], {"max_tokens": 5}, OutputCaps(5, 1)),
        (["a", [1]], {"max_tokens": 5}, OutputCaps(10, 2)),
        ({"a": 1}, {"max_tokens": 5}, OutputCaps(5, 1)),
        (["a"] * 3, {"max_tokens": 10**9}, OutputCaps(MAX_TOKENS, 3)),
    ],
)
def test_the_caps_of_completions(value, fields, expected):
    assert caps(prompt(value, **fields), COMPLETIONS) == expected


def test_embeddings_have_no_output():
    assert caps(b'{"model":"m","input":["a","b"],"max_tokens":5}', EMBEDDINGS) == OutputCaps(0, 1)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"n":"\\ud800"}', b'{"n":' + b"[" * 100_000])
def test_an_unreadable_body_has_no_caps_but_a_weight(body):
    assert caps(body, CHAT) == OutputCaps(None, 1)
    assert sum(weigh(body)) <= len(body)


def test_characters_are_counted_by_script():
    seen = weigh(prompt("ab 한국어 漢字 かなカナ é Ж ไทย 😀 12!"))
    assert seen == TextWeight(0, 10, 2, 3, 2, 3, 2, 4, 3, 1, 0, 0)


@pytest.mark.parametrize("escaped", [False, True])
def test_an_escaped_character_is_the_character(escaped):
    text = 'C:\\users\\u1 "한국어" 漢字 かな é ไทย 😀\n\ttab \x7f'
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}, ensure_ascii=escaped)
    assert weigh(body.encode()) == weigh(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}, ensure_ascii=False).encode()
    )


def test_escapes_beside_raw_characters_and_in_capitals_are_characters_too():
    body = '{"prompt":"\\uD55C한\\ud55c漢\\u6f22\\\\ud55c"}'.encode()
    assert (weigh(body).hangul, weigh(body).han) == (3, 2)
    assert weigh(body).plain == len("udc")
    assert weigh(body).digits == len("55")


def test_only_the_input_is_weighed():
    bare = weigh(chat("Hello"))
    assert weigh(chat("Hello", user="u" * 500, metadata={"a": "b" * 500}, temperature=0.25)) == bare
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    assert weigh(chat("Hello", tools=tools)).plain > bare.plain
    assert weigh(chat("Hello", response_format={"type": "json_object"})).plain > bare.plain
    assert weigh(prompt("a", suffix="bcd")).plain == 4


def test_messages_are_counted_and_their_frames_are_not_text():
    turns = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
    seen = weigh(json.dumps({"messages": turns}).encode())
    assert seen.turns == 3
    assert seen.plain + seen.punctuation < 10
    quoted = weigh(chat('{"role": "user", "content": "x"}'))
    assert quoted.turns == 2


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/" + "a" * 500}},
        {"type": "input_audio", "input_audio": {"data": PIXELS, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXELS}"}},
    ],
)
def test_media_are_counted_as_pieces(part):
    one, two = weigh(chat([{"type": "text", "text": "Look"}, part])), weigh(chat([part, part]))
    assert (one.media, two.media) == (1, 2)
    assert one.plain < 100
    slashed = json.dumps({"messages": [{"role": "user", "content": [part]}]}).replace("/", "\\/").encode()
    assert weigh(slashed).media == 1 or "https" in str(part)


def test_a_text_about_media_is_text():
    seen = weigh(chat("The field \"image_url\" takes 'data:image/png;base64,iVBOR'. " * 10))
    assert seen.media == 0
    assert seen.plain > 300


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ([], 0),
        ([5], 1),
        ([1, 22, 333], 3),
        ([[1, 22], [333]], 3),
        ([[], [1], []], 1),
        ([[]], 0),
    ],
)
@pytest.mark.parametrize("field", ["prompt", "input"])
@pytest.mark.parametrize("indent", [None, 2])
def test_ids_are_counted_one_by_one(value, ids, field, indent):
    assert weigh(json.dumps({"model": "m", field: value}, indent=indent).encode()) == NOTHING._replace(ids=ids)


def test_a_list_with_a_text_in_it_is_text():
    assert weigh(prompt([[1, 2], "x" * 100])).ids == 0
    assert weigh(prompt([[1, 2], "x" * 100])).plain >= 100


def test_rate_16_what_the_tokenizer_rejects_is_estimated_and_logged_once(caplog):
    def broken(name: str) -> exact_tokens.Vocabulary:
        return Broken()

    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXELS}"}}
    bodies = [
        chat([{"type": "text", "text": "Look"}, image]),
        chat("\ud800"),
        chat("가나다" * 230_000),
        chat("Hello"),
        chat("Hello again"),
    ]
    estimator = Estimator(exact_tokens.load(["gpt-4o"], broken))
    with caplog.at_level(logging.WARNING, "sluice"):
        made = [estimator.estimate(*measure(body, CHAT), "gpt-4o", "key", body) for body in bodies]
    plain = Estimator()
    assert made == [plain.estimate(*measure(body, CHAT), "gpt-4o", "key") for body in bodies]
    assert all(one.input > 0 for one in made)
    assert made[2].input > 400_000
    assert [record.message for record in caplog.records] == ["an exact token count failed"]


class Broken:
    def count(self, text: str) -> int:
        raise RuntimeError("no such piece")


class Words:
    """Counts words: enough to see what is added to them."""

    def count(self, text: str) -> int:
        return len(text.split())


def words(name: str) -> exact_tokens.Vocabulary:
    return Words()


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("gpt-5.1", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("text-embedding-ada-002", "cl100k_base"),
        ("Qwen/Qwen3-0.6B", "qwen3"),
        ("qwen2.5-7b-instruct", "qwen3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        ("qwen3.5-9b", None),
        ("llama-2-7b", None),
        ("ollama3", None),
        ("mistral", None),
    ],
)
def test_the_vocabulary_of_a_model(model, vocabulary):
    dialect = exact_tokens.dialect_of(model)
    assert (dialect.vocabulary if dialect else None) == vocabulary


def test_an_exact_count_includes_the_template():
    count = exact_tokens.load(["gpt-4o", "qwen3-8b", "llama-3-8b", "mistral"], words)
    assert count is not None
    two = json.dumps(
        {
            "messages": [
                {"role": "system", "content": "one two"},
                {"role": "user", "name": "kim", "content": [{"type": "text", "text": "three"}]},
            ]
        }
    ).encode()
    assert count(two, "gpt-4o") == (3 + 1 + 2) + (3 + 1 + 2 + 1) + 3
    assert count(two, "qwen3-8b") == (4 + 1 + 2) + (4 + 1 + 2 + 1) + 3
    assert count(prompt("one two"), "gpt-4o") == 2
    assert count(prompt("one two"), "llama-3-8b") == 3
    assert count(prompt(["one two", "three"]), "gpt-4o") == 3
    assert count(prompt([1, 2, 3]), "gpt-4o") == 3
    assert count(prompt([[1, 2], [3]]), "gpt-4o") == 3
    assert count(b'{"input":"one two"}', "gpt-4o") == 2
    assert count(two, "mistral") is None


@pytest.mark.parametrize(
    "body",
    [
        chat("x" * exact_tokens.MAX_BODY),
        chat("Hi", tools=[{}]),
        chat("Hi", functions=[{}]),
        chat("Hi", response_format={"type": "json_object"}),
        chat([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]),
        chat(7),
        chat("\ud800"),
        prompt("a", suffix="b"),
        b'{"messages":[{"role":"assistant","tool_calls":[]}]}',
        b"{}",
        b"{",
    ],
)
def test_bodies_with_more_than_text_have_no_exact_count(body):
    count = exact_tokens.load(["gpt-4o"], words)
    assert count is not None
    assert count(body, "gpt-4o") is None


def test_without_the_extra_or_a_known_model_there_is_no_counter(caplog):
    def absent(name: str) -> exact_tokens.Vocabulary:
        raise ModuleNotFoundError(name)

    def torn(name: str) -> exact_tokens.Vocabulary:
        raise OSError("truncated")

    assert exact_tokens.load(["mistral"], words) is None
    assert exact_tokens.load(["gpt-4o"], absent) is None
    assert not caplog.records
    assert exact_tokens.load(["gpt-4o"], torn) is None
    assert [record.message for record in caplog.records] == ["exact token counts are off"]


@pytest.mark.parametrize(
    ("body", "endpoint", "returned", "stated"),
    [
        (chat("Hi"), CHAT, 1, False),
        (chat("Hi", n=3, best_of=5, max_tokens=0), CHAT, 3, True),
        (chat("Hi", max_completion_tokens=9), CHAT, 1, True),
        (prompt("Hi"), COMPLETIONS, 1, False),
        (prompt(["a", "b"], n=2, best_of=3), COMPLETIONS, 4, False),
        (prompt([1, 2, 3], max_tokens=5, max_completion_tokens=9), COMPLETIONS, 1, True),
        (b"[]", COMPLETIONS, 1, False),
    ],
)
def test_a_complete_answer_has_so_many_choices(body: bytes, endpoint: Endpoint, returned: int, stated: bool) -> None:
    caps = endpoint.caps(read_fields(body))
    assert (caps.returned, caps.stated) == (returned, stated)


@pytest.mark.parametrize(
    "piece", ["The quick brown fox jumps over 12 dogs. ", "한국어와 English가 섞인 글 3개. ", '{"a": [1, 2, "x"]} ']
)
def test_a_long_text_is_weighed_by_samples_of_it(piece: str) -> None:
    short = weigh(chat(piece * 100))
    long = weigh(chat(piece * 20_000))
    assert long.turns == short.turns
    estimator = Estimator()
    few, many = (estimator.estimate(one, OutputCaps(1, 1), "m", "k").input for one in (short, long))
    assert many == pytest.approx(200 * few, rel=0.02)


def test_a_long_text_with_an_image_is_weighed_as_a_whole() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXELS * 3}}
    seen = weigh(chat([{"type": "text", "text": "Look"}, picture]))
    assert (seen.media, seen.plain < 200) == (1, True)
