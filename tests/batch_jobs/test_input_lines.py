"""The check of a batch's input file: errors by line, and tasks that hold every line once."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.batch_scene import CHAT, jsonl, line

from gateway.batch_jobs.input_lines import MOST_ERRORS, InputCheck, LineSplitter, TaskRange, lines_of


def checked(content: bytes, *, pieces: int = 7, max_lines: int = 10_000, max_line: int = 100_000) -> InputCheck:
    """The file, read in pieces of so many bytes."""
    refused = {"secret": ("model_not_allowed", "Not for you."), "nope": ("model_not_found", "No such model.")}
    check = InputCheck(CHAT, max_lines, max_line, refused.get)
    for start in range(0, len(content), pieces):
        check.feed(content[start : start + pieces])
    check.end()
    return check


def found(check: InputCheck) -> list[tuple[int | None, str]]:
    return [(error.line, error.code) for error in check.errors]


@pytest.mark.parametrize(
    ("wrong", "codes"),
    [
        (b"{", ["invalid_json_line"]),
        (b"[]", ["invalid_json_line"]),
        (b'{"custom_id": "\xff"}', ["invalid_json_line"]),
        (b"[" * 5000, ["invalid_json_line"]),
        ({**line(9), "custom_id": ""}, ["invalid_custom_id"]),
        ({**line(9), "custom_id": 9}, ["invalid_custom_id"]),
        ({**line(9), "custom_id": "x" * 513}, ["invalid_custom_id"]),
        (line(1), ["duplicate_custom_id"]),
        ({**line(9), "method": "GET"}, ["invalid_method"]),
        ({**line(9), "url": "/v1/embeddings"}, ["invalid_url"]),
        ({**line(9), "body": "x"}, ["invalid_request"]),
        ({key: value for key, value in line(9).items() if key != "body"}, ["invalid_request"]),
        ({**line(9), "body": {}}, ["invalid_request"]),
        (line(9, stream=True), ["invalid_request"]),
        (line(9, stream="no"), ["invalid_request"]),
        (line(9, "nope"), ["model_not_found"]),
        (line(9, "secret"), ["model_not_allowed"]),
        ({}, ["invalid_custom_id", "invalid_method", "invalid_url", "invalid_request"]),
    ],
)
def test_each_error_names_its_line(wrong: Any, codes: list[str]) -> None:
    check = checked(jsonl(line(1), b"", wrong, line(4)))
    assert found(check) == [(3, code) for code in codes]
    assert check.total == 3


def test_stream_false_is_accepted() -> None:
    assert found(checked(jsonl(line(1, stream=False), line(2, stream=None)))) == []


def test_a_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    content = b"\xef\xbb\xbf" + jsonl(line(1), line(2)).replace(b"\n", b"\r\n")
    check = checked(content)
    assert (found(check), check.total) == ([], 2)
    assert [each.custom_id for each in read(check, content)] == ["line-1", "line-2"]


@pytest.mark.parametrize("content", [b"", b"\n\r\n \n"])
def test_a_file_without_lines_is_refused(content: bytes) -> None:
    assert found(checked(content)) == [(None, "empty_file")]


def test_too_many_lines_are_refused() -> None:
    assert found(checked(jsonl(*map(line, range(3))), max_lines=2)) == [(None, "too_many_lines")]
    assert found(checked(jsonl(*map(line, range(2))), max_lines=2)) == []


def test_a_line_without_an_end_takes_no_memory() -> None:
    check = InputCheck(CHAT, 10, 1000, lambda model: None)
    for _ in range(100):
        check.feed(b"x" * 500)
        assert check._lines.held <= 1500
    check.end()
    assert check.errors[0].message == "This line is longer than 1000 bytes."


def test_the_list_of_errors_is_bounded() -> None:
    assert len(checked(b"x\n" * (MOST_ERRORS + 50)).errors) == MOST_ERRORS


def read(check: InputCheck, content: bytes) -> list[Any]:
    return [each for task in check.tasks for each in lines_of(task, content[task.start : task.end])]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 150), st.integers(0, 700), st.integers(1, 5000), st.booleans())
def test_tasks_hold_every_line_once_however_the_file_arrives(count: int, step: int, pieces: int, ended: bool) -> None:
    lines = [line(number, text="x" * (number * step % 3000)) for number in range(1, count + 1)]
    content = jsonl(*lines)
    if not ended:
        content = content[:-1]
    check = checked(content, pieces=pieces)
    assert found(check) == []
    requests = read(check, content)
    assert [each.number for each in requests] == [*range(1, count + 1)]
    assert [each.custom_id for each in requests] == [each["custom_id"] for each in lines]
    assert [json.loads(each.body) for each in requests] == [each["body"] for each in lines]
    assert check.model == "m-small"


def test_a_body_stays_as_it_was_written() -> None:
    body = b'{ "model" : "m-small",\t"x": 1.50, "model_": "\\u0041" }'
    content = b'{"custom_id":"a","method":"POST","url":"%b","body":%b}\n' % (CHAT.encode(), body)
    (request,) = read(checked(content), content)
    assert request.body == body


def test_tasks_are_small() -> None:
    check = checked(jsonl(*(line(number, text="x" * 300_000) for number in range(8))), pieces=65_536, max_line=10**6)
    assert [task.first for task in check.tasks] == [1, 4, 7]
    assert len(checked(jsonl(*map(line, range(200))), pieces=65_536).tasks) == 4


def test_positions_are_those_of_the_file() -> None:
    splitter = LineSplitter(100)
    assert [*splitter.feed(b"ab\nc"), *splitter.feed(b"d\n\ne"), *splitter.end()] == [
        (100, b"ab"),
        (103, b"cd"),
        (106, b""),
        (107, b"e"),
    ]
    assert TaskRange(0, 1, 2).first == 2
