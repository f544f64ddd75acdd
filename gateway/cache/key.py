"""Cache keys: digests of what a request body means, not of how it is written.

All members count, known or not, except a short list that cannot change an answer. It is a deny list because
a member missing from an allow list would hand one request another request's answer. Objects are sorted by
name, numbers compare as numbers (0 is 0.0), lists keep their order.
"""

import hashlib
import json
import math
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from blake3 import blake3
from msgspec import Raw

from gateway.core.request_fields import ABSENT, RequestFields
from gateway.wire.json.find import count
from gateway.wire.request_body import turns_of

SCHEMA: Final = 2
"""Part of every key. Increment it when the contents of a key or of a stored value change."""

IRRELEVANT: Final = frozenset(
    [
        *("model", "stream", "stream_options", "user", "safety_identifier", "metadata", "store"),
        *("request_id", "session_id", "priority", "prompt_cache_key", "prompt_cache_retention", "cache_salt"),
    ]
)
"""Members that do not change the answer. The model is in the key as the candidates that serve it."""

_QUOTE: Final = b'"'
_MESSAGES: Final = re.compile(rb'"messages"\s*:\s*')
_LARGE: Final = 8 * 1024
_HIDDEN_QUOTE: Final = b"\\u0022"
_encode = msgspec.json.Encoder(order="sorted").encode


def _number(text: str) -> int | float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("no engine takes an infinite number")
    return int(value) if value.is_integer() else value


_decode = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
_decode_any = msgspec.json.Decoder(float_hook=_number).decode


class RequestDigest(NamedTuple):
    """The digest of one body, and the members that matter to the cache.

    `digest` covers all relevant members. `exact`: the client set temperature to 0. `form` differs between
    streams of different kinds and complete answers. `usage`: the stream ends with its usage.
    """

    digest: bytes
    exact: bool
    form: bytes
    usage: bool


class RequestDigests:
    """LRU cache of the last `max_entries` digests, by the hash of the raw bytes."""

    def __init__(self, max_entries: int = 4096) -> None:
        self._max_entries = max_entries
        self._digests: OrderedDict[bytes, RequestDigest | None] = OrderedDict()

    def of(self, body: bytes, fields: RequestFields | None = None) -> RequestDigest | None:
        """Return the digest; None for an ambiguous body, such as one with a duplicate name.

        `fields` are the body's, if they have been read already.
        """
        if len(body) > _LARGE:  # to find it again would cost as much
            return digest_of(body, fields)
        raw = hashlib.sha256(body).digest()
        digests = self._digests
        try:
            request_digest = digests[raw]
        except KeyError:
            request_digest = digests[raw] = digest_of(body)
            if len(digests) > self._max_entries:
                digests.popitem(last=False)
        else:
            digests.move_to_end(raw)
        return request_digest


def digest_of(body: bytes, read: RequestFields | None = None) -> RequestDigest | None:
    """Digest a body that is one valid JSON object; None as in `RequestDigests.of`."""
    split = _split_fields(body, read)
    if split is None:
        return None
    digest, fields, irrelevant = split
    options = irrelevant.get("stream_options")
    stream = irrelevant.get("stream") is True
    temperature = fields.get("temperature")
    exact = type(temperature) is int and temperature == 0  # false equals 0 too
    form = _encode([True, options]) if stream else b""
    usage = stream and isinstance(options, dict) and options.get("include_usage") is True
    return RequestDigest(digest, exact, form, usage)


def scope(tenant: str | None, endpoint: str, model: str, serving: bytes, headers: Sequence[str] = ()) -> bytes:
    """Return the digest of everything but the body: no request outside this scope shares a key with it.

    `serving` identifies the candidates of `model`; `headers` are the values of the forwarded headers.
    """
    return hashlib.sha256(_encode([SCHEMA, tenant, endpoint, model, serving.hex(), *headers])).digest()


def key(scope: bytes, digest: bytes) -> bytes:
    """Return the key of one answer."""
    return hashlib.sha256(scope + digest).digest()


def item_keys(scope: bytes, shared: bytes, items: Sequence[bytes]) -> list[bytes] | None:
    """Return one key per item (JSON) of a list of inputs; None as in `RequestDigests.of`.

    `shared` holds all other members of the request, without the braces.
    """
    split = _split_fields(b"{%b}" % shared)
    if split is None:
        return None
    base = hashlib.sha256(scope + split[0])
    keys = []
    try:
        for item in items:
            item_hash = base.copy()
            item_hash.update(_encode(_decode_any(item)))
            keys.append(item_hash.digest())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return keys


_Fields = dict[str, Any]


def _split_fields(body: bytes, read: RequestFields | None = None) -> tuple[bytes, _Fields, _Fields] | None:
    """Return the digest of the relevant members, these members, and the irrelevant ones."""
    try:
        fields = None
        if read is not None and len(body) > _LARGE and read.messages is not ABSENT:
            fields = _decode_around(body, read)
        if fields is None:
            fields = _decode(body)
        irrelevant = {name: fields.pop(name) for name in IRRELEVANT & fields.keys()}
        text = _encode(fields)
        if not _names_are_unique(body, text, irrelevant):
            return None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return _digest(text), fields, irrelevant


def _decode_around(body: bytes, read: RequestFields) -> _Fields | None:
    """Decode all but the long texts in the messages, which stay JSON; None if the messages are not found again.

    A text without escapes is its own canonical form, and encoding passes it as it is.
    """
    turns, messages = turns_of(read), bytes(read.messages)
    for name in _MESSAGES.finditer(body):
        if turns and body.startswith(messages, name.end()):
            fields = _decode(body[: name.end()] + b"0" + body[name.end() + len(messages) :])
            if fields.get("messages") != 0:  # found in another member
                continue
            fields["messages"] = [{name: _canonical(value) for name, value in turn.items()} for turn in turns]
            return fields
    return None


def _canonical(value: Raw) -> Any:
    text = bytes(value)
    return value if text[:1] == _QUOTE and b"\\" not in text else _decode_any(text)


def _digest(text: bytes) -> bytes:
    """Return 32 bytes. blake3 is several times faster on long texts, sha256 on short ones."""
    return blake3(text).digest() if len(text) > _LARGE else hashlib.sha256(text).digest()


def _names_are_unique(body: bytes, text: bytes, irrelevant: _Fields) -> bool:
    """Return whether no object repeats a name: our decoder uses the last one, an engine may use the first.

    Re-encoded members have as many quotes as the body unless a member was dropped or a quote was escaped.
    """
    if b"\\" not in body or _HIDDEN_QUOTE not in body:
        quotes = count(text, _QUOTE) + sum([2 + _encode(value).count(_QUOTE) for value in irrelevant.values()])
        if quotes == count(body, _QUOTE):
            return True
    try:
        json.loads(body, object_pairs_hook=_require_unique)
    except _DuplicateName:
        return False
    return True


class _DuplicateName(Exception):
    pass


def _require_unique(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _DuplicateName
