"""What a request needs of whatever answers it."""

import json
from typing import Any

import pytest

from gateway.wire.openai.capabilities import needs
from gateway.wire.request_body import read_fields


def body_of(*parts: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}], **more}).encode()


TEXT = {"type": "text", "text": "What is this?"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (body_of(TEXT), set()),
        (body_of(TEXT, {"type": "image_url", "image_url": {"url": "https://a/b.png"}}), {"vision"}),
        (body_of({"type": "video_url", "video_url": {"url": "https://a/b"}}), {"vision"}),
        (body_of({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}), {"audio"}),
        (body_of(TEXT, modalities=["text", "audio"], audio={"voice": "x"}), {"audio"}),
        (body_of(TEXT, modalities=["text"]), set()),
        (body_of(TEXT, tools=[{"type": "function"}]), {"tools"}),
        (body_of(TEXT, functions=[{"name": "f"}]), {"tools"}),
        (body_of(TEXT, tools=[]), set()),
        (body_of(TEXT, tools=None, functions=None, response_format=None), set()),
        (body_of(TEXT, response_format={"type": "json_object"}), set()),
        (body_of(TEXT, response_format={"type": "json_schema", "json_schema": {}}), {"json_schema"}),
        (body_of(TEXT, response_format={"type": "text", "note": "json_schema"}), set()),
        (body_of({"type": "text", "text": 'say "image_url" and "input_audio"'}), set()),
        (body_of({"type": "text", "text": "image_url"}), set()),
        (body_of({"type": "image_url"}, tools=[{}]), {"tools", "vision"}),
    ],
)
def test_what_a_body_needs(body: bytes, expected: set[str]) -> None:
    assert needs(read_fields(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"messages":"image_url"}',
        b'{"messages":[7,"image_url"]}',
        b'{"tools":' + b"[" * 100_000,
    ],
)
def test_an_unreadable_body_needs_nothing(body: bytes) -> None:
    assert needs(read_fields(body)) == set()


def test_text_content_has_no_parts() -> None:
    assert needs(read_fields(b'{"messages":[{"content":"image_url"},{"content":null},{}]}')) == set()
