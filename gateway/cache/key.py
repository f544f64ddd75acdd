"""When two requests are the same to the answer cache: digests of what their bodies say, not of how.

Everything that a body holds counts, known or not, and then a short list of members is taken off that cannot
change an answer; never the other way round, for a member that was forgotten would give one call the answer of
another. Objects are sorted by name, numbers are compared as numbers (0 is 0.0), lists keep their order.
"""

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

SCHEMA: Final = 1
"""Part of every key: whoever changes what is in a key, or what is kept under it, counts it up."""

IRRELEVANT: Final = frozenset(
    [
        *("model", "stream", "stream_options", "user", "safety_identifier", "metadata", "store"),
        *("request_id", "session_id", "priority", "prompt_cache_key", "prompt_cache_retention", "cache_salt"),
    ]
)
"""Members that do not change what is answered. `model` is in the key as what serves it."""

_QUOTE: Final = b'"'
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
    """What is to know of one body.

    `digest` is of all that counts. `exact`: its temperature is 0, said by the client itself. `form` tells
    streams of different kinds and whole answers apart, `usage` whether a stream shall end with its usage.
    """

    digest: bytes
    exact: bool
    form: bytes
    usage: bool


class RequestDigests:
    """Bodies as read; those that came again within the last `most` are known by the digest of their bytes."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._known: OrderedDict[bytes, RequestDigest | None] = OrderedDict()

    def of(self, body: bytes) -> RequestDigest | None:
        """None for a body that cannot be told from others for certain, such as one with a name twice."""
        raw = hashlib.sha256(body).digest()
        known = self._known
        try:
            reading = known[raw]
        except KeyError:
            reading = known[raw] = read(body)
            if len(known) > self._most:
                known.popitem(last=False)
        else:
            known.move_to_end(raw)
        return reading


def read(body: bytes) -> RequestDigest | None:
    """As `Readings.of`, of a body that is one valid JSON object."""
    found = _told_apart(body)
    if found is None:
        return None
    digest, fields, taken_off = found
    options = taken_off.get("stream_options")
    stream = taken_off.get("stream") is True
    temperature = fields.get("temperature")
    exact = type(temperature) is int and temperature == 0  # false equals 0 too
    form = _encode([True, options]) if stream else b""
    usage = stream and isinstance(options, dict) and options.get("include_usage") is True
    return RequestDigest(digest, exact, form, usage)


def scope(
    tenant: str | None, endpoint: str, model: str, serving: bytes, headers: Sequence[str] = ()
) -> bytes:
    """What a key begins with: nobody outside this scope can have the same one.

    `serving` tells what answers calls for `model`, `headers` are the values of those that travel upstream.
    """
    return hashlib.sha256(_encode([SCHEMA, tenant, endpoint, model, serving.hex(), *headers])).digest()


def key(scope: bytes, digest: bytes) -> bytes:
    """The key of one answer."""
    return hashlib.sha256(scope + digest).digest()


def item_keys(scope: bytes, shared: bytes, items: Sequence[bytes]) -> list[bytes] | None:
    """The key of each item of a list of inputs, texts or lists of ids, as JSON.

    `shared` are all other members of the request, as the members of an object. None as in `Readings.of`.
    """
    found = _told_apart(b"{%b}" % shared)
    if found is None:
        return None
    base = hashlib.sha256(scope + found[0])
    keys = []
    try:
        for item in items:
            one = base.copy()
            one.update(_encode(_decode_any(item)))
            keys.append(one.digest())
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return keys


_Fields = dict[str, Any]


def _told_apart(body: bytes) -> tuple[bytes, _Fields, _Fields] | None:
    """The digest of what counts, what counts, and the rest."""
    try:
        fields = _decode(body)
        taken_off = {name: fields.pop(name) for name in IRRELEVANT & fields.keys()}
        text = _encode(fields)
        if not _names_are_unique(body, text, taken_off):
            return None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return hashlib.sha256(text).digest(), fields, taken_off


def _names_are_unique(body: bytes, text: bytes, taken_off: _Fields) -> bool:
    """Of two members with one name in one object a decoder keeps the last; an engine may take the other.

    Whatever was decoded from the body (`text` and what was taken off) has as many quotes as the body, unless
    a member was lost, or one is written as an escape.
    """
    if b"\\" not in body or _HIDDEN_QUOTE not in body:
        quotes = text.count(_QUOTE) + sum([2 + _encode(one).count(_QUOTE) for one in taken_off.values()])
        if quotes == body.count(_QUOTE):
            return True
    try:
        json.loads(body, object_pairs_hook=_once)
    except _Twice:
        return False
    return True


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _Twice
