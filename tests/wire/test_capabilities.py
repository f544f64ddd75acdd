"""What a request needs of whatever answers it."""

import json
from typing import Any

import pytest

from gateway.wire.openai.capabilities import needs


def said(*parts: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": list(parts)}], **more}).encode()


TEXT = {"type": "text", "text": "What is this?"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (said(TEXT), set()),
        (said(TEXT, {"type": "image_url", "image_url": {"url": "https://a/b.png"}}), {"vision"}),
        (said({"type": "video_url", "video_url": {"url": "https://a/b"}}), {"vision"}),
        (said({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}), {"audio"}),
        (said(TEXT, modalities=["text", "audio"], audio={"voice": "x"}), {"audio"}),
        (said(TEXT, modalities=["text"]), set()),
        (said(TEXT, tools=[{"type": "function"}]), {"tools"}),
        (said(TEXT, functions=[{"name": "f"}]), {"tools"}),
        (said(TEXT, tools=[]), set()),
        (said(TEXT, tools=None, functions=None, response_format=None), set()),
        (said(TEXT, response_format={"type": "json_object"}), set()),
        (said(TEXT, response_format={"type": "json_schema", "json_schema": {}}), {"json_schema"}),
        (said(TEXT, response_format={"type": "text", "note": "json_schema"}), set()),
        (said({"type": "text", "text": 'say "image_url" and "input_audio"'}), set()),
        (said({"type": "text", "text": "image_url"}), set()),
        (said({"type": "image_url"}, tools=[{}]), {"tools", "vision"}),
    ],
)
def test_what_a_body_needs(body: bytes, expected: set[str]) -> None:
    assert needs(body) == expected


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
def test_what_cannot_be_read_needs_nothing(body: bytes) -> None:
    assert needs(body) == set()


def test_a_content_that_is_a_text_has_no_parts() -> None:
    assert needs(b'{"messages":[{"content":"image_url"},{"content":null},{}]}') == set()
