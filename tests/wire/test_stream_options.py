"""A request that asks for usage where its client did not, byte for byte."""

import pytest

from gateway.wire.json.members import edited
from gateway.wire.openai.stream_options import refused, usage_edits
from gateway.wire.request_body import read_fields


def asking_for_usage(body: bytes) -> bytes:
    """The body that travels."""
    return b"".join(edited(body, usage_edits(read_fields(body), body)))


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
    assert asking_for_usage(before) == after


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
    assert asking_for_usage(body) == b'{"stream_options":{"include_usage":true},' + body[1:]


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
        b'{"stream_options":{"\\ud80":1}}',
    ],
)
def test_a_client_that_asks_or_sends_an_unreadable_option_is_not_edited(body: bytes):
    assert usage_edits(read_fields(body), body) == []


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
    assert asking_for_usage(before) == after


REFUSALS = [
    "Unrecognized request argument supplied: stream_options",
    "{'type': 'extra_forbidden', 'msg': 'Extra inputs are not permitted'}",
    "`include_usage` is not supported",
    "Failed to deserialize: Unknown field at line 1",
    "streamOptions: not allowed here",
    'Invalid JSON payload received. Unknown name "stream_options": Cannot find field.',
    "Additional properties are not allowed ('stream_options' was unexpected)",
    "create() got an unexpected keyword argument",
    "Unsupported parameter(s)",
    "Unrecognized key(s) in object",
    "extra fields not permitted",
    "property 'stream_options' is unsupported",
    "Stream options can only be set by admins",
]


@pytest.mark.parametrize("status", [400, 422, 500, 501])
@pytest.mark.parametrize("error", REFUSALS)
def test_a_refusal_that_may_be_about_it(error: str, status: int):
    assert refused(error, None, status)


@pytest.mark.parametrize("status", [403, 404, 405, 409, 415, 502])
def test_a_refusal_that_names_it_has_any_status(status: int):
    assert refused("stream_options?", None, status)
    assert refused("no", "stream_options.include_usage", status)


@pytest.mark.parametrize(
    ("error", "param", "status"),
    [
        ("", None, 400),
        ("`temperature` must be below 2", None, 400),
        ("Unknown parameter: 'foo'", "foo", 400),
        ("unknown field", None, 404),
        ("unknown field", None, 502),
        *(("stream_options", None, status) for status in (401, 402, 429, 503, 529)),
        ("invalid image", None, 400),
    ],
)
def test_a_refusal_about_something_else(error: str, param: str | None, status: int):
    assert not refused(error, param, status)
