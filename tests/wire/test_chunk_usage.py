"""Usage that only the gateway asked for, and what a stream has generated where nobody tells."""

import json

import msgspec
import pytest
from test_chunks import DONE, NAME, chunk, public

from gateway.core.call import TokenUsage
from gateway.wire.openai.chunks import ChunkReader

COUNTS = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@pytest.fixture
def reader() -> ChunkReader:
    return ChunkReader(NAME, msgspec.json.encode(NAME))


@pytest.fixture
def strict() -> ChunkReader:
    """A reader for a client that did not ask for the usage which the gateway asked for."""
    return ChunkReader(NAME, msgspec.json.encode(NAME), strip_usage=True)


def test_sse_20_openai_says_null_in_every_chunk_and_counts_in_the_last(strict: ChunkReader):
    said = [chunk("a"), chunk("b"), chunk("c", system=None), chunk("", "stop")]
    sent = [event.replace(b"]", b'],"usage":null', 1) for event in said]
    assert [strict.feed(event) for event in sent] == [public(event) for event in said]
    assert strict.feed(chunk(choices=[], usage=COUNTS)) == b""
    assert strict.feed(DONE) == DONE
    assert strict.tokens == TokenUsage(5, 2)


def test_sse_20_vllm_counts_in_a_chunk_of_its_own(strict: ChunkReader):
    said = [chunk("a"), chunk("b"), chunk("", "stop")]
    assert strict.feed(b"".join(said) + chunk(choices=[], usage=COUNTS) + DONE) == public(b"".join(said)) + DONE
    assert strict.tokens == TokenUsage(5, 2)


def test_sse_20_vllm_counts_in_every_chunk_if_told_so(strict: ChunkReader):
    for count in (1, 2, 3):
        assert strict.feed(chunk("a", usage={"completion_tokens": count})) == public(chunk("a"))
    assert strict.tokens == TokenUsage(0, 3)


def test_sse_20_deepseek_counts_beside_the_finish_reason(strict: ChunkReader):
    assert strict.feed(chunk("a")) == public(chunk("a"))
    assert strict.feed(chunk("", "stop", usage=COUNTS, x=1)) == public(chunk("", "stop", x=1))
    assert (strict.complete(1), strict.tokens) == (True, TokenUsage(5, 2))


def test_sse_20_several_choices(strict: ChunkReader):
    choices = [{"index": place, "delta": {"content": "a"}, "finish_reason": None} for place in range(3)]
    for _ in range(2):
        assert strict.feed(chunk(choices=choices, usage=None)) == public(chunk(choices=choices))
    assert strict.generated == 6
    assert strict.feed(chunk(choices=choices, usage=COUNTS)) == public(chunk(choices=choices))


def test_a_chunk_without_choices_that_counts_nothing_passes(strict: ChunkReader):
    assert strict.feed(chunk(choices=[], filter=[1])) == public(chunk(choices=[], filter=[1]))
    assert strict.feed(chunk(choices=[], usage=None)) == public(chunk(choices=[]))


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        (b'{"usage":null}', b"{}"),
        (b'{ "usage" : null , "a":1}', b'{ "a":1}'),
        (b'{"a":1 , "usage" : null , "b":2}', b'{"a":1  , "b":2}'),
        (b'{"a":"\\"usage\\":null,","x":{"usage":null}}', b'{"a":"\\"usage\\":null,","x":{"usage":null}}'),
        (b'{"a":"usage","x":[{"usage":null}],"usage":null}', b'{"a":"usage","x":[{"usage":null}]}'),
        (b'{"a":1,"\\u0075sage":null,"x":{"k":1,"usage":null}}', b'{"a":1,"x":{"k":1,"usage":null}}'),
        (b'{"usage":null,"a":1,"usage":null}', b'{"a":1}'),
        (b'{"usage":null,"usage":null}', b"{}"),
    ],
)
@pytest.mark.parametrize("first", ["", '"choices":[{}],'])
def test_only_the_chunks_own_usage_is_cut(strict: ChunkReader, sent: bytes, passed: bytes, first: str):
    """However it stands, and alike for the first chunk and for those that begin as the one before."""
    lead = b'{"model":"up",' + first.encode()
    shown = (b'{"model":"m-small",' + first.encode() + passed[1:]).replace(b",}", b"}")
    for _ in range(2):
        out = strict.feed(b"data: " + lead + sent[1:] + b"\n\n")
        assert json.loads(out[6:]) == json.loads(shown)
    alone = ChunkReader(NAME, b'"m-small"', strip_usage=True)
    assert alone.feed(b"data: " + sent + b"\n\n") == b"data: " + passed + b"\n\n"


def test_usage_before_the_model_is_cut_too(strict: ChunkReader):
    for _ in range(3):
        passed = strict.feed(b'data: {"usage":null,"model":"up","choices":[{"delta":{}}]}\n\n')
        assert passed == b'data: {"model":"m-small","choices":[{"delta":{}}]}\n\n'


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_other_line_ends_and_comments_stay(strict: ChunkReader, end: bytes):
    sent = b'event: x\ndata:{"model":"up","usage":null}\n\n'.replace(b"\n", end)
    assert strict.feed(sent) == sent.replace(b',"usage":null', b"").replace(b"up", b"m-small")
    dropped = b': note\ndata: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'.replace(b"\n", end)
    assert strict.feed(dropped + b": more\n\n") == b": note" + end + b"\n: more\n\n"


def test_usage_over_several_lines_is_cut(strict: ChunkReader):
    passed = strict.feed(b'data: {"model":"up",\ndata: "usage":\ndata: null}\n\n')
    assert json.loads(passed[6:]) == {"model": NAME}


def test_cost_06_what_was_generated_is_counted_without_usage(reader: ChunkReader):
    assert reader.generated == 0
    reader.feed(chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}]))
    assert reader.generated == 0
    for _ in range(100):
        reader.feed(chunk("word"))
    assert reader.generated == 100
    reader.feed(chunk("", "stop") + DONE)
    assert reader.generated == 100


@pytest.mark.parametrize("texts", [["x" * 4000], ["Hi", "y" * 3998], ["z" * 40] * 100, ["안" * 13] * 100])
def test_chunks_of_many_tokens_count_by_their_text(reader: ChunkReader, texts: list[str]):
    for text in texts:
        reader.feed(chunk(text))
    assert reader.generated == pytest.approx(len("".join(texts).encode()) / 4, rel=0.15)


def test_the_json_around_the_text_does_not_count(reader: ChunkReader):
    """The shape changes on the way, as from content to a tool call with its probabilities."""
    call = {"tool_calls": [{"index": 0, "function": {"arguments": "word"}}]}
    rich = [{"index": 0, "delta": call, "logprobs": {"content": [{"token": "x" * 200}]}}]
    for _ in range(320):
        reader.feed(chunk("word"))
    before = reader.generated
    for _ in range(320):
        reader.feed(chunk(choices=rich))
    assert (before, reader.generated) == (320, 640)


def test_escaped_text_is_counted_by_what_it_says(reader: ChunkReader):
    for _ in range(50):
        reader.feed(chunk("안녕").replace("안녕".encode(), b"\\uc548\\ub155"))
    assert reader.generated == 50


def test_a_completion_ends_with_text_in_its_last_chunk(reader: ChunkReader):
    for text, finish in (("a", None), ("b", None), ("c", "length")):
        reader.feed(chunk(choices=[{"index": 0, "text": text, "finish_reason": finish}]))
    assert reader.generated == 3
