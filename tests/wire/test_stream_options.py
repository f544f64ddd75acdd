"""A request that asks for usage where its client did not, byte for byte."""

import pytest

from gateway.wire.json.members import edited
from gateway.wire.openai.stream_options import asking, refused


def asked(body: bytes) -> bytes:
    """The body that travels."""
    return b"".join(edited(body, asking(body)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"m"}', b'{"stream_options":{"include_usage":true},"model":"m"}'),
        (b' {\n "model":"m"}', b' {"stream_options":{"include_usage":true},\n "model":"m"}'),
        (b'{"stream_options":null,"a":1}', b'{"stream_options":{"include_usage":true},"a":1}'),
        (b'{"stream_options" : { } }', b'{"stream_options" : {"include_usage":true } }'),
        (
            b'{"stream_options":{"continuous_usage_stats":true}}',
            b'{"stream_options":{"include_usage":true,"continuous_usage_stats":true}}',
        ),
        (
            b'{"stream_options":{"x":1.0, "include_usage" : false }}',
            b'{"stream_options":{"x":1.0, "include_usage" : true }}',
        ),
        (b'{"stream_options":{"include_usage":null}}', b'{"stream_options":{"include_usage":true}}'),
        (
            b'{"\\u0073tream_options":{"\\u0069nclude_usage":false}}',
            b'{"\\u0073tream_options":{"\\u0069nclude_usage":true}}',
        ),
        (
            b'{"stream_options":{"in":{"include_usage":false}}}',
            b'{"stream_options":{"include_usage":true,"in":{"include_usage":false}}}',
        ),
    ],
)
def test_sse_20_usage_is_asked_for_and_nothing_else_changes(before: bytes, after: bytes):
    assert asked(before) == after


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"content":"\\"stream_options\\":{\\"include_usage\\":true}"}]}',
        b'{"messages":[{"content":"stream_options"}],"x":"stream_options"}',
        b'{"tools":[{"stream_options":{"include_usage":true}}]}',
        b'{"metadata":{"stream_options":null},"x":"}{,]["}',
        b'{"a":"\\u00e9","\\u0062":1}',
    ],
)
def test_what_stands_in_a_text_or_deeper_is_not_the_clients_wish(body: bytes):
    assert asked(body) == b'{"stream_options":{"include_usage":true},' + body[1:]


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream_options":{"include_usage":true}}',
        b'{"stream_options": {"x":{}, "include_usage" :true} }',
        b'{"\\u0073tream_options":{"include_usage":true}}',
        b'{"stream_options":null,"stream_options":{"include_usage":false,"include_usage":true}}',
        b'{"stream_options":7}',
        b'{"stream_options":[]}',
        b'{"stream_options":"x"}',
        b'{"stream_options":{"include_usage":1}}',
        b'{"stream_options":{"include_usage":0}}',
        b'{"stream_options":{"include_usage":"false"}}',
        b'{"stream_options":{"\\ud800":1}}',
    ],
)
def test_a_client_that_asks_or_says_what_nobody_understands_is_left_alone(body: bytes):
    assert asking(body) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b'{"stream_options":{"include_usage":true},"stream_options":{}}',
            b'{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream_options":7,"x":[{}],"stream_options":null}',
            b'{"stream_options":7,"x":[{}],"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream_options":{"include_usage":true,"include_usage":false}}',
            b'{"stream_options":{"include_usage":true,"include_usage":true}}',
        ),
    ],
)
def test_of_repeated_names_the_last_one_counts_and_all_of_them_ask(before: bytes, after: bytes):
    assert asked(before) == after


@pytest.mark.parametrize(
    "error",
    [
        b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}',
        b'{"error":{"message":"no","param":"stream_options"}}',
        b'{"detail":[{"type":"extra_forbidden","msg":"Extra inputs are not permitted"}]}',
        b'{"message":"`include_usage` is not supported"}',
        b"Failed to deserialize: Unknown field at line 1",
    ],
)
def test_a_refusal_that_may_be_about_it(error: bytes):
    assert refused(error)


@pytest.mark.parametrize("error", [b"", b'{"error":{"message":"`temperature` must be below 2"}}'])
def test_a_refusal_about_something_else(error: bytes):
    assert not refused(error)
