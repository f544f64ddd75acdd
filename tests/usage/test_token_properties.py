"""Whatever the bytes, there is an estimate; it is never negative, and more text is never fewer tokens."""

import json

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import SCALARS, examples, member, string, values
from kit.weights import caps, measure, weigh

from gateway.core.call import TokenUsage
from gateway.usage import exact_tokens
from gateway.usage.estimator import Estimator
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.token_weight import MAX_TOKENS

ENDPOINTS = st.sampled_from([CHAT, COMPLETIONS, EMBEDDINGS])
ANY_TEXT = st.text(max_size=60) | st.text('ab 09{}"\\\n한漢かé😀', max_size=60)
FIELDS = st.sampled_from(["max_tokens", "max_completion_tokens", "n", "best_of", "prompt", "input", "messages"])
PARTS = (
    [
        b'{"messages":',
        b'{"prompt":',
        b'"role"',
        b'"_"',
        b'"url":"data:',
        b";base64,",
        b"[[",
        b"]",
        b"1,",
        b'"',
    ],
    [b"\\u", b"\\ud83d", b"\\ude00", b"\\U0011ffff", b"\\\\", b"\xed\xa0\x80", b"\xff", b"}"],
)
FRAGMENTS = st.lists(st.sampled_from(PARTS[0]) | st.sampled_from(PARTS[1]) | st.binary(max_size=4), max_size=14).map(
    b"".join
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """An object whose fields may hold anything at all."""
    keys = draw(st.lists(FIELDS, max_size=5))
    members = [draw(member(key, draw(values(2)))) for key in keys]
    return ("{" + ",".join(members) + "}").encode()


def chat(text: str, *, escaped: bool = False) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return json.dumps(body, ensure_ascii=escaped).encode()


@examples(300)
@given(FRAGMENTS | bodies(), ENDPOINTS)
def test_whatever_the_bytes_there_is_an_estimate(body: bytes, endpoint: str):
    weight, bounds = measure(body, endpoint)
    assert (weight, bounds) == (weigh(body), caps(body, endpoint))
    assert min(weight) >= 0
    assert bounds.output is None or 0 <= bounds.output <= MAX_TOKENS
    assert 1 <= bounds.choices <= MAX_TOKENS
    made = Estimator().estimate(weight, bounds, "m", "k")
    assert made.input >= 0
    assert made.output >= 0


@examples(200)
@given(ANY_TEXT)
def test_an_escaped_text_weighs_as_much(text: str):
    whole = text.encode("utf-8", "ignore").decode()
    assert weigh(chat(whole, escaped=True)) == weigh(chat(whole))


@examples(200)
@given(ANY_TEXT, st.booleans())
def test_twice_the_text_is_not_fewer_tokens(text: str, escaped: bool):
    whole = text.encode("utf-8", "ignore").decode()
    once, twice = (weigh(chat(one, escaped=escaped)) for one in (whole, whole * 2))
    assert all(more >= less for less, more in zip(once, twice, strict=True))
    estimator, bounds = Estimator(), caps(chat(whole), CHAT)
    assert estimator.estimate(twice, bounds, "m", "k").input >= estimator.estimate(once, bounds, "m", "k").input


@examples(100)
@given(ANY_TEXT)
def test_estimating_changes_nothing(text: str):
    body = chat(text.encode("utf-8", "ignore").decode())
    estimator = Estimator()
    first = estimator.estimate(*measure(body, CHAT), "m", "k")
    assert estimator.estimate(*measure(body, CHAT), "m", "k") == first


@examples(100)
@given(
    st.lists(
        st.tuples(ANY_TEXT, st.integers(-(10**30), 10**30) | st.integers(0, 300), st.integers(-5, 10**30)),
        max_size=20,
    )
)
def test_whatever_is_reported_estimates_stay_sane(reports: list[tuple[str, int, int]]):
    estimator, fresh = Estimator(), Estimator()
    for text, input_tokens, output_tokens in reports:
        measured = measure(chat(text.encode("utf-8", "ignore").decode()), CHAT)
        made = estimator.estimate(*measured, "m", "k")
        estimator.learn(made, "m", "k", TokenUsage(input_tokens, output_tokens))
        first = fresh.estimate(*measured, "m", "k").input
        assert first / 4 - 1 <= estimator.estimate(*measured, "m", "k").input <= first * 4 + 1
        assert 1 <= estimator.estimate(*measured, "m", "k").output <= 10**6


@examples(200)
@given(FRAGMENTS | bodies() | SCALARS.filter(lambda one: isinstance(one, str)).flatmap(string).map(str.encode))
def test_an_exact_counter_never_raises(body: bytes):
    class Letters:
        def count(self, text: str) -> int:
            return len(text.encode())

    count = exact_tokens.load(["gpt-4o"], lambda name: Letters())
    assert count is not None
    counted = count(body, "gpt-4o")
    assert counted is None or counted >= 0
