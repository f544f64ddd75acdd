"""A request's output caps, and the weight of its text by script: the input of the token estimate.

No tokenizer is needed. The characters of the text that becomes tokens are counted by class with one
`bytes.translate`, which leaves one byte for every character that is neither a letter nor a space.
"""

import re
from string import ascii_letters
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from gateway.core.request_fields import ABSENT, RequestFields
from gateway.core.tokens import OutputCaps
from gateway.wire.json import find as names

MAX_TOKENS: Final = 10**9
"""Numbers sent by clients are clamped to this."""

_COMPLETION_DEFAULT: Final = 16
"""Default `max_tokens` of /v1/completions at OpenAI and vLLM."""

NO_CAP: Final = OutputCaps(None, 1, 1)


class TextWeight(NamedTuple):
    """Characters by class, and three other counts: `turns` (messages, plus one that opens the answer),
    `media` (images, sounds, files) and `ids` (token ids sent by the client).

    `plain`: ASCII letters and spaces. `narrow`, `wide`, `astral`: other characters of 2, 3 and 4 bytes in
    UTF-8.
    """

    turns: int
    plain: int
    digits: int
    punctuation: int
    narrow: int
    hangul: int
    han: int
    kana: int
    wide: int
    astral: int
    media: int
    ids: int


_decode_prompts = msgspec.json.Decoder(list[str]).decode

_SPACES: Final = b" \t\r\n"
_ID_LIST: Final = b"[],0123456789" + _SPACES
_MEDIA = re.compile(
    rb'"(?:url|image_url|data|file_data)"[ \t\r\n]*:[ \t\r\n]*"(?:https?:|data:|[A-Za-z0-9+/=\\]{64})[^"]*"'
)
_MEDIA_NAMES: Final = (b'"url"', b'"image_url"', b'"data"', b'"file_data"')

_LONG: Final = 128 * 1024
"""Bytes from which a text without media is weighed by evenly spaced samples: half of it has the same mix."""
_SAMPLES: Final = 64
_SAMPLE: Final = 1024

_PAIR = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_ONE_ASTRAL: Final = b"\xf0\x90\x80\x80"


def _tables() -> tuple[bytes, bytes]:
    """Return a table for `bytes.translate`, and the bytes it drops: plain characters, and continuation bytes.

    The first byte in UTF-8 identifies the script well enough: EA to ED are mostly Hangul, E4 to E9 Han, E3
    kana and CJK punctuation, EF full-width forms. The marks are control bytes, which JSON text cannot hold.
    """
    table = bytearray(range(256))
    for mark, members in {
        _DIGIT: b"0123456789",
        _NARROW: range(0xC0, 0xE0),
        _WIDE: (0xE0, 0xE1, 0xE2, 0xEE),
        _KANA: (0xE3, 0xEF),
        _HAN: range(0xE4, 0xEA),
        _HANGUL: range(0xEA, 0xEE),
        _ASTRAL: range(0xF0, 0x100),
    }.items():
        for member in members:
            table[member] = mark[0]
    plain = {*range(0x21), 0x7F, *ascii_letters.encode()}
    return bytes(table), bytes({*plain, *range(0x80, 0xC0)})


_DIGIT: Final = b"0"
_SCRIPTS = _NARROW, _HANGUL, _HAN, _KANA, _WIDE, _ASTRAL = b"\1", b"\2", b"\3", b"\4", b"\5", b"\6"
_CLASSES, _DROPPED = _tables()

_TURN_PLAIN: Final = 18
_TURN_PUNCTUATION: Final = 14
"""Counts in `{"role": "user", "content": ""}, `, which is no text: subtracted once per message."""


def chat_caps(fields: RequestFields | None) -> OutputCaps:
    """Return the caps of a chat request; of several, the largest, whichever the upstream obeys.

    Strings and floats are accepted as lenient upstreams do; anything else counts as absent.
    """
    if fields is None or (
        fields.max_tokens is None
        and fields.max_completion_tokens is None
        and fields.n is None
        and fields.best_of is None
    ):
        return NO_CAP
    stated = fields.max_tokens is not None or fields.max_completion_tokens is not None
    most = max(_positive(fields.max_tokens), _positive(fields.max_completion_tokens))
    return _caps(fields, most, stated=stated, prompts=1)


def response_caps(fields: RequestFields | None) -> OutputCaps:
    """Return the caps of a responses request, which has one answer."""
    if fields is None or fields.max_output_tokens is None:
        return NO_CAP
    return OutputCaps(_positive(fields.max_output_tokens) or None, 1, 1, stated=True)


def completion_caps(fields: RequestFields | None) -> OutputCaps:
    """Return the caps of a completions request. `echo` adds nothing: upstreams count only generated tokens."""
    if fields is None:
        return NO_CAP
    stated = fields.max_tokens is not None
    most = max(_positive(fields.max_tokens), _positive(fields.max_completion_tokens))
    if not stated and not most:
        most = _COMPLETION_DEFAULT
    return _caps(fields, most, stated=stated, prompts=_prompts(bytes(fields.prompt)))


def _caps(fields: RequestFields, most: int, *, stated: bool, prompts: int) -> OutputCaps:
    returned = max(1, _positive(fields.n)) * prompts
    choices = min(max(1, _positive(fields.n), _positive(fields.best_of)) * prompts, MAX_TOKENS)
    return OutputCaps(min(most * choices, MAX_TOKENS) if most else None, choices, returned, stated)


def weigh(fields: RequestFields | None, body: bytes) -> TextWeight:
    """Weigh what becomes input tokens: messages, prompt, input, documents, tools, response format.

    Never raises: a body without `fields` is weighed as plain text.
    """
    if fields is None:
        return _weigh_text(body, 0)
    text = bytes(fields.messages)
    if fields.tools is not ABSENT or fields.functions is not ABSENT or fields.response_format is not ABSENT:
        text += b"".join(map(bytes, (fields.tools, fields.functions, fields.response_format)))
    if fields.messages is not ABSENT and fields.system is ABSENT:
        return _weigh_text(text, 0)
    ids = 0
    for listed in map(bytes, _texts(fields)):
        if _is_id_list(listed):
            ids += _count_ids(listed)
        else:
            text += listed
    return _weigh_text(text, ids)


def _texts(fields: RequestFields) -> tuple[Raw, ...]:
    """Return the members beside `messages` and what goes with them that become input."""
    asked = fields.prompt, fields.suffix, fields.input, fields.instructions, fields.system, fields.text
    return *asked, fields.query, fields.documents, fields.text_1, fields.text_2


def _weigh_text(text: bytes, ids: int) -> TextWeight:
    if len(text) > _LONG and all(names.find(text, name) < 0 for name in _MEDIA_NAMES):
        step = len(text) // _SAMPLES
        sample = _weigh_whole(b"".join([text[at * step : at * step + _SAMPLE] for at in range(_SAMPLES)]), 0)
        roles = names.count(text, b'"role"')
        scaled = [count * step // _SAMPLE for count in sample]
        return TextWeight._make([roles + 1 if roles else 0, *scaled[1:-1], ids])
    return _weigh_whole(text, ids)


def _weigh_whole(text: bytes, ids: int) -> TextWeight:
    media = 0
    marks = text.translate(_CLASSES, _DROPPED)
    if b'"_"' in marks:  # image_url, input_audio and file_data, with their letters dropped
        text, media = _MEDIA.subn(b"", text)
        marks = text.translate(_CLASSES, _DROPPED)
    if b"\\" in marks and b"\\u" in text:
        text = _unescaped(text)
        marks = text.translate(_CLASSES, _DROPPED)
    roles = names.count(text, b'"role"')  # inside the client's text the quotes would be escaped
    turns = roles + 1 if roles else 0
    marked, digits = len(marks), marks.count(_DIGIT)
    plain = len(text) - marked - _TURN_PLAIN * roles
    punctuation = marked - digits - _TURN_PUNCTUATION * roles
    if text.isascii():
        if plain < 0:
            plain = 0
        if punctuation < 0:
            punctuation = 0
        # Same as `TextWeight(...)` without its Python-level __new__: this path runs for most calls.
        return tuple.__new__(TextWeight, (turns, plain, digits, punctuation, 0, 0, 0, 0, 0, 0, media, ids))
    narrow, hangul, han, kana, wide, astral = map(marks.count, _SCRIPTS)
    threes = hangul + han + kana + wide
    plain -= narrow + 2 * threes + 3 * astral  # continuation bytes
    punctuation -= narrow + threes + astral
    plain, punctuation = max(plain, 0), max(punctuation, 0)
    return TextWeight(turns, plain, digits, punctuation, narrow, hangul, han, kana, wide, astral, media, ids)


def _positive(value: object) -> int:
    if isinstance(value, int):
        return value if 0 < value < MAX_TOKENS else min(max(value, 0), MAX_TOKENS)
    if isinstance(value, float | str):
        try:
            number = float(value)
        except ValueError:
            return 0
        return int(min(number, MAX_TOKENS)) if number > 0 else 0
    return 0


def _prompts(prompt: bytes) -> int:
    """Return the number of prompts; a list of token ids is one."""
    if not prompt.startswith(b"["):
        return 1
    if _is_id_list(prompt):
        return max(1, prompt.count(b"[") - 1)
    try:
        return max(1, len(_decode_prompts(prompt)))
    except msgspec.DecodeError:  # not all strings
        return prompt.count(b",") + 1


def _is_id_list(value: bytes) -> bool:
    """Return whether this is a list of numbers, or a list of such lists."""
    return value.startswith(b"[") and not value.translate(None, _ID_LIST)


def _count_ids(value: bytes) -> int:
    """Count the numbers in a list, or in lists of numbers: one more than commas, less the empty lists."""
    return value.count(b",") + 1 - value.translate(None, _SPACES).count(b"[]")


def _unescaped(text: bytes) -> bytes:
    """Replace every `\\uXXXX` with its character; other escapes stay.

    Python's raw-unicode-escape codec reads backslashes in pairs, as JSON does. It decodes non-ASCII bytes as
    Latin-1, so these are escaped first.
    """
    if not text.isascii():
        text = text.decode("utf-8", "replace").encode("raw_unicode_escape")
    plain = text.decode("raw_unicode_escape", "replace")
    try:
        return plain.encode()
    except UnicodeEncodeError:  # surrogates: a pair is one character, lone ones stay
        return _PAIR.sub(_ONE_ASTRAL, plain.encode("utf-8", "surrogatepass"))
