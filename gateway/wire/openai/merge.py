"""Recognises requests that differ only in their payload, and merges them into one request, in bytes.

`demerge` splits the upstream's answer. Payloads are never re-encoded: each text, list of ids or conversation
reaches the upstream in the client's own bytes, as one item.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from gateway.core.endpoint import Endpoint
from gateway.wire.openai.item_weight import weigh, weigh_ids
from gateway.wire.openai.peek import NULL

_POSITION: Final = re.compile(
    r"""(
      \b(?:input|prompt)                            # input[3]   input.3   'input', 3
        (?:['"]?[.,]\s?['"]?list\[\S{0,40}\])?      # ... with a type name between, as Pydantic writes it
        (?:\[|\.|['"],\s?)
    | \bindex[ ]?[ :=][ ]?                          # index 3   index: 3   index=3
    )
    ([0-9]{1,9})(?![0-9])""",
    re.VERBOSE,
)


def split_list(items: Sequence[bytes], weights: Sequence[int], max_inputs: int, max_tokens: int) -> list[slice]:
    """Consecutive parts within both limits; an item that exceeds a limit by itself is a separate part."""
    parts: list[slice] = []
    start = tokens = 0
    for at in range(len(items)):
        if at > start and (at - start >= max_inputs or tokens + weights[at] > max_tokens):
            parts.append(slice(start, at))
            start, tokens = at, 0
        tokens += weights[at]
    return [*parts, slice(start, len(items))]


def shift_positions(message: str, offset: int) -> str:
    """An upstream's message about a part that begins at `offset`, with positions in the complete list."""
    return _POSITION.sub(lambda match: f"{match[1]}{int(match[2]) + offset}", message)


class Mergeable(NamedTuple):
    """A request that may share an upstream call with any other of the same endpoint and `key`.

    `key` is the payload type plus `shared`: every member except payload, model and `stream`, sorted by name.
    Values stay byte for byte, because in a JSON schema even the order of members matters. `items` are the
    payload, `weights` their estimated tokens. `output` is the most tokens of an answer, 0 for embeddings.
    """

    key: bytes
    shared: bytes
    items: tuple[bytes, ...]
    weights: tuple[int, ...]
    output: int


_COMPLETION_DEFAULT: Final = Raw(b"16")
_MOST_DIGITS: Final = 9

_OFF: Final = (b"null", b"false")
_ONE: Final = (b"null", b"1")
# Members that a list of conversations or prompts cannot have, or whose result belongs to a single prompt.
_NOT_MERGEABLE: Final = frozenset(
    [
        *("tools", "tool_choice", "functions", "function_call", "stream_options", "use_beam_search", "echo"),
        *("prompt_embeds", "prompt_logprobs", "return_prompt_text", "return_token_ids"),
        *("return_token_offsets", "kv_transfer_params", "ec_transfer_params", "request_id"),
    ]
)

_Fields = Mapping[str, Raw]
_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder(order="sorted").encode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


class _Turn(Struct, gc=False):
    """A message; only its being an object is checked."""


_decode_turns = msgspec.json.Decoder(list[_Turn]).decode

_QUOTE: Final = ord('"')
_ID_LIST: Final = b"[],0123456789 \t\r\n"


def parse(body: bytes, endpoint: Endpoint, max_output: int) -> Mergeable | None:
    """Read a body that a typed peek has validated; None if the request must be sent unmerged.

    Chat and completions merge only with an answer limited to at most `max_output` tokens.
    """
    try:
        fields = _decode(body)
        payload = fields.get(endpoint.payload)
        if payload is None or ("stream" in fields and bytes(fields["stream"]) not in _OFF):
            return None
        output = 0
        if endpoint.generates:
            if not _is_mergeable(fields):
                return None
            output = _output(fields, endpoint)
            if not 0 < output <= max_output:
                return None
        elif "messages" in fields:
            return None
        shared = _shared(body, fields, endpoint.payload)
        parsed = _conversation(bytes(payload)) if endpoint.conversation else _items(bytes(payload))
    except (msgspec.DecodeError, RecursionError):
        return None
    if shared is None or parsed is None:
        return None
    payload_type, items, weights = parsed
    return Mergeable(payload_type + shared, shared, items, weights, output)


def build(endpoint: Endpoint, template: Mergeable, model: bytes, items: Iterable[bytes]) -> tuple[Endpoint, bytes]:
    """The endpoint and body of the call that carries these items, all of one key.

    `model` is the upstream's name for the model, as a JSON string.
    """
    payload = b",".join(items)
    name = endpoint.payload.encode()
    body = b'{"model":%b%b,"%b":[%b]}' % (model, template.shared, name, payload)
    return endpoint.merged or endpoint, body


def _is_mergeable(fields: _Fields) -> bool:
    """Whether the request asks for nothing that a list cannot have."""
    for name in _NOT_MERGEABLE.intersection(fields):
        if bytes(fields[name]) not in _OFF:
            return False
    return bytes(fields.get("n", NULL)) in _ONE and bytes(fields.get("best_of", NULL)) in _ONE


def _output(fields: _Fields, endpoint: Endpoint) -> int:
    """The limit on the answer's tokens; 0 if there is none, or it is not readable."""
    absent = NULL if endpoint.conversation else _COMPLETION_DEFAULT
    output = 0
    for bound in (fields.get("max_tokens", absent), fields.get("max_completion_tokens", NULL)):
        text = bytes(bound)
        if text.isdigit() and len(text) <= _MOST_DIGITS:
            output = max(output, int(text))
        elif text != b"null" or (bound is not NULL and not endpoint.conversation):
            return 0
    return output


def _shared(body: bytes, fields: _Fields, payload: str) -> bytes | None:
    """Every other member, sorted, without whitespace; None if a name is repeated or spelled with escapes.

    `fields` holds a repeated name once, and an escape is longer than its character: in both cases the
    re-encoded fields are shorter than the text.
    """
    packed = msgspec.json.format(body, indent=-1)
    if len(packed) != len(body):
        fields = _decode(packed)
    if len(_encode(fields)) != len(packed):
        return None
    rest = {name: value for name, value in fields.items() if name not in ("model", "stream", payload)}
    return b"," + _encode(rest)[1:-1] if rest else b""


_Payload = tuple[bytes, tuple[bytes, ...], tuple[int, ...]]
"""The type of the payload, its items and their weights."""


def _conversation(messages: bytes) -> _Payload | None:
    return (b"chat", (messages,), (weigh(messages),)) if _decode_turns(messages) else None


def _items(payload: bytes) -> _Payload | None:
    """Parse a text, a list of ids, or a list of texts or of id lists."""
    if payload.startswith(b'"'):
        return b"text", (payload,), (weigh(payload),)
    if _is_ids(payload):
        return b"ids", (payload,), (weigh_ids(payload),)
    items = tuple(map(bytes, _decode_list(payload)))
    if not items:
        return None
    if {item[0] for item in items} == {_QUOTE}:
        return b"text", items, tuple(map(weigh, items))
    if all(map(_is_ids, items)):
        return b"ids", items, tuple(map(weigh_ids, items))
    return None


def _is_ids(value: bytes) -> bool:
    """Whether this is a non-empty list of numbers."""
    if not value.startswith(b"[") or value.translate(None, _ID_LIST):
        return False
    return value.count(b"[") == 1 and value[1:-1].strip() != b""
