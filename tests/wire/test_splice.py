"""Replacing the model name in a body, by examples."""

import pytest

from gateway.wire.json.splice import model_spans, parts, replace

NAME = b'"new"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"m"}', b'{"model":"new"}'),
        (b'{ "a":1 ,\r\n"model" :\t"m" }', b'{ "a":1 ,\r\n"model" :\t"new" }'),
        (b'{"model":""}', b'{"model":"new"}'),
        (b'{"model":"a\\"b\\\\"}', b'{"model":"new"}'),
        (b'{"mod\\u0065l":"m"}', b'{"mod\\u0065l":"new"}'),
        (b'{"\\u006D\\u006F\\u0064\\u0065\\u006C":"m"}', b'{"\\u006D\\u006F\\u0064\\u0065\\u006C":"new"}'),
        (b'{"model":"a","x":1,"model":"b"}', b'{"model":"new","x":1,"model":"new"}'),
        (b'{"x":{"model":"in"},"model":"m"}', b'{"x":{"model":"in"},"model":"new"}'),
        (b'{"model":"m","x":[{"model":"in"}]}', b'{"model":"new","x":[{"model":"in"}]}'),
        (b'{"x":"\\"model\\":\\"s\\"","model":"m"}', b'{"x":"\\"model\\":\\"s\\"","model":"new"}'),
        (b'{"x":"model","model":"m"}', b'{"x":"model","model":"new"}'),
        (b'{"model":"\\u0061","x":1e5,"y":1.0}', b'{"model":"new","x":1e5,"y":1.0}'),
        (
            b'{"a":"}{][","b":["]"],"model":"m","model":"n"}',
            b'{"a":"}{][","b":["]"],"model":"new","model":"new"}',
        ),
        (b'{"\\ud800":1,"model":"m","x":"\\u0000"}', b'{"\\ud800":1,"model":"new","x":"\\u0000"}'),
    ],
)
def test_only_the_model_name_changes(before: bytes, after: bytes):
    assert replace(before, model_spans(before), NAME) == after


@pytest.mark.parametrize("value", [b"null", b"7", b"[]", b'{"model":"in"}'])
def test_a_value_that_is_not_a_string_is_unchanged(value: bytes):
    text = b'{"model": ' + value + b"}"
    assert replace(text, model_spans(text), NAME) == text


LONG = b"y" * 70_000
QUOTES = b'"q",' * 300


@pytest.mark.parametrize("between", [LONG, LONG + b'","z":[' + QUOTES + b'"q"],"w":"'])
@pytest.mark.parametrize("names", [1, 2])
def test_the_name_is_found_at_the_end_of_a_long_body_and_twice_in_it(between: bytes, names: int):
    before = b'{"model":"m",' if names == 2 else b"{"
    text = before + b'"x":"' + between + b'","model":"m"}'
    assert len(model_spans(text)) == names
    assert replace(text, model_spans(text), NAME) == text.replace(b'"model":"m"', b'"model":"new"')


def test_a_long_body_is_not_copied():
    text = b'{"model":"m","x":"' + b"y" * 1000 + b'"}'
    pieces = parts(text, model_spans(text), NAME)
    assert [bytes(piece) for piece in pieces] == [b'{"model":', NAME, text[12:]]
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == [text, text]
