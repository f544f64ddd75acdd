"""What a request asks for, as far as tokens go: its caps on the output, and the weight of its text by script.

Nothing here needs a tokenizer. The text that an upstream turns into tokens is found by a typed peek; what it
consists of is counted on its bytes, in one pass that leaves a byte for whatever is no letter and no space.
"""

import re
from string import ascii_letters
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.core.call import COMPLETIONS, EMBEDDINGS
from gateway.wire.json import find as names

MOST: Final = 10**9
"""Whatever a client claims is clamped to this."""

_COMPLETION_DEFAULT: Final = 16
"""OpenAI's and vLLM's `max_tokens` of /v1/completions where none is given."""

_ABSENT: Final = Raw(b"")


class OutputCaps(NamedTuple):
    """Bounds of the answer.

    `output`: tokens at most, of all choices together; None where the client set no cap. `choices`: answers
    that are generated for this call.
    """

    output: int | None
    choices: int


NO_CAP: Final = OutputCaps(None, 1)
NO_OUTPUT: Final = OutputCaps(0, 1)


class TextWeight(NamedTuple):
    """How much there is of what. Characters, except for `turns` (messages, and one for the answer's opening),
    `media` (images, sounds, files) and `ids` (tokens that the client has counted out itself).

    `plain` are ASCII letters and spaces; `narrow`, `wide` and `astral` have 2, 3 and 4 bytes in UTF-8 and no
    class of their own.
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


class _Request(Struct, gc=False):
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None
    best_of: Any = None
    messages: Raw = _ABSENT
    prompt: Raw = _ABSENT
    suffix: Raw = _ABSENT
    input: Raw = _ABSENT
    tools: Raw = _ABSENT
    functions: Raw = _ABSENT
    response_format: Raw = _ABSENT


_decode = msgspec.json.Decoder(_Request).decode
_decode_prompts = msgspec.json.Decoder(list[str]).decode

_SPACES: Final = b" \t\r\n"
_ID_LIST: Final = b"[],0123456789" + _SPACES
_MEDIA = re.compile(
    rb'"(?:url|image_url|data|file_data)"[ \t\r\n]*:[ \t\r\n]*"(?:https?:|data:|[A-Za-z0-9+/=\\]{64})[^"]*"'
)
_PAIR = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_ONE_ASTRAL: Final = b"\xf0\x90\x80\x80"


def _kinds() -> tuple[bytes, bytes]:
    """A table for `bytes.translate`, and what it drops: plain characters, and all bytes after a first one.

    UTF-8's first byte tells the script well enough: EA to ED hold Hangul and little else, E4 to E9 Han, E3
    kana and CJK punctuation, EF the full-width forms. The marks are control bytes, which JSON has none of.
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
_KINDS, _DROPPED = _kinds()

_TURN_PLAIN: Final = 18
_TURN_PUNCTUATION: Final = 14
"""What `{"role": "user", "content": ""}, ` has of them: no text, so it is taken off for every message."""


def measure(body: bytes, endpoint: str) -> tuple[TextWeight, OutputCaps]:
    """`weigh` and `caps` in one look at the body."""
    seen = _read(body)
    return _weigh_parts(seen, body), _read_caps(seen, endpoint)


def caps(body: bytes, endpoint: str) -> OutputCaps:
    """The caps of this body. The largest counts where several are given, whichever the upstream obeys.

    Numbers that are strings or floats count too, as lenient upstreams read them; anything else is as good as
    absent. `echo` adds nothing: upstreams count what they generate.
    """
    return _read_caps(_read(body), endpoint)


def cap(body: bytes, endpoint: str) -> int | None:
    """Output tokens at most, as `caps` has them, where the client itself has set them; else None."""
    seen = _read(body)
    if seen is None or (
        seen.max_tokens is None and (endpoint == COMPLETIONS or seen.max_completion_tokens is None)
    ):
        return None
    return _read_caps(seen, endpoint).output


def weigh(body: bytes) -> TextWeight:
    """Weigh what becomes input tokens: messages, prompt, input, tools, response format. Never raises; a body
    that cannot be read is weighed as a whole."""
    return _weigh_parts(_read(body), body)


def _read(body: bytes) -> _Request | None:
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _read_caps(seen: _Request | None, endpoint: str) -> OutputCaps:
    if endpoint == EMBEDDINGS:
        return NO_OUTPUT
    if seen is None:
        return NO_CAP
    most, choices = 0, 1
    if seen.max_tokens is not None:
        most = _positive(seen.max_tokens)
    if seen.max_completion_tokens is not None:
        most = max(most, _positive(seen.max_completion_tokens))
    if seen.n is not None or seen.best_of is not None:
        choices = max(1, _positive(seen.n), _positive(seen.best_of))
    if endpoint == COMPLETIONS:
        choices = min(choices * _prompts(bytes(seen.prompt)), MOST)
        if seen.max_tokens is None and not most:
            most = _COMPLETION_DEFAULT
    if not most:
        return NO_CAP if choices == 1 else OutputCaps(None, choices)
    return OutputCaps(min(most * choices, MOST), choices)


def _weigh_parts(seen: _Request | None, body: bytes) -> TextWeight:
    if seen is None:
        return _weigh_text(body, 0)
    text = bytes(seen.messages)
    if seen.tools is not _ABSENT or seen.functions is not _ABSENT or seen.response_format is not _ABSENT:
        text += b"".join(map(bytes, (seen.tools, seen.functions, seen.response_format)))
    if seen.prompt is _ABSENT and seen.input is _ABSENT:
        return _weigh_text(text, 0)
    ids = 0
    for listed in map(bytes, (seen.prompt, seen.suffix, seen.input)):
        if _is_id_list(listed):
            ids += _count_ids(listed)
        else:
            text += listed
    return _weigh_text(text, ids)


def _weigh_text(text: bytes, ids: int) -> TextWeight:
    media = 0
    marks = text.translate(_KINDS, _DROPPED)
    if b'"_"' in marks:  # so look image_url, input_audio and file_data without their letters
        text, media = _MEDIA.subn(b"", text)
        marks = text.translate(_KINDS, _DROPPED)
    if b"\\" in marks and b"\\u" in text:
        text = _unescaped(text)
        marks = text.translate(_KINDS, _DROPPED)
    roles = names.count(text, b'"role"')  # in a text of the client's the quotes would be escaped
    turns = roles + 1 if roles else 0
    kept, digits = len(marks), marks.count(_DIGIT)
    plain = len(text) - kept - _TURN_PLAIN * roles
    punctuation = kept - digits - _TURN_PUNCTUATION * roles
    if text.isascii():
        if plain < 0:
            plain = 0
        if punctuation < 0:
            punctuation = 0
        # What `Weight(...)` does, without a function of Python's between: this one is made for most calls.
        return tuple.__new__(TextWeight, (turns, plain, digits, punctuation, 0, 0, 0, 0, 0, 0, media, ids))
    narrow, hangul, han, kana, wide, astral = map(marks.count, _SCRIPTS)
    threes = hangul + han + kana + wide
    plain -= narrow + 2 * threes + 3 * astral  # the bytes after the first were dropped
    punctuation -= narrow + threes + astral
    plain, punctuation = max(plain, 0), max(punctuation, 0)
    return TextWeight(turns, plain, digits, punctuation, narrow, hangul, han, kana, wide, astral, media, ids)


def _positive(value: object) -> int:
    if isinstance(value, int):
        return value if 0 < value < MOST else min(max(value, 0), MOST)
    if isinstance(value, float | str):
        try:
            number = float(value)
        except ValueError:
            return 0
        return int(min(number, MOST)) if number > 0 else 0
    return 0


def _prompts(prompt: bytes) -> int:
    """How many prompts this is: a list of ids is one."""
    if not prompt.startswith(b"["):
        return 1
    if _is_id_list(prompt):
        return max(1, prompt.count(b"[") - 1)
    try:
        return max(1, len(_decode_prompts(prompt)))
    except msgspec.DecodeError:  # not all of them text
        return prompt.count(b",") + 1


def _is_id_list(value: bytes) -> bool:
    """Whether this is a list of numbers, or a list of such lists."""
    return value.startswith(b"[") and not value.translate(None, _ID_LIST)


def _count_ids(value: bytes) -> int:
    """Numbers in a list of numbers or of lists: one more than commas, unless a list is empty."""
    return value.count(b",") + 1 - value.translate(None, _SPACES).count(b"[]")


def _unescaped(text: bytes) -> bytes:
    """The text with every `\\uXXXX` as the character it stands for; other escapes stay.

    Python's raw-unicode-escape reads backslashes in pairs, as JSON does. It takes bytes beyond ASCII for
    Latin-1, so these are escaped first.
    """
    if not text.isascii():
        text = text.decode("utf-8", "replace").encode("raw_unicode_escape")
    plain = text.decode("raw_unicode_escape", "replace")
    try:
        return plain.encode()
    except UnicodeEncodeError:  # surrogates: pairs are one character, lone ones stay
        return _PAIR.sub(_ONE_ASTRAL, plain.encode("utf-8", "surrogatepass"))
