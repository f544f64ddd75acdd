"""Splits the answer to a merged call by `index`, and joins the answers to the parts of one long list.

An answer that does not match its request is rejected whole: one wrong index makes all of them doubtful.
Choices need an exact index; embeddings may do without (`item_order`). Vectors and texts stay the upstream's
bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.endpoint import Endpoint
from gateway.core.tokens import TokenUsage
from gateway.wire.openai import item_order
from gateway.wire.openai.finish_reason import failure_status
from gateway.wire.openai.item_weight import size
from gateway.wire.openai.peek import NO_ERROR, NULL
from gateway.wire.openai.usage_split import split_usage, sum_usage

_Item = Mapping[str, Raw]
_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[dict[str, Raw]]).decode

_MOST_DIGITS: Final = 9
_PLACEHOLDER: Final = b"[[]]"
# Members about a single prompt: in an answer to several callers they would leak between callers.
_SINGLE_PROMPT: Final = (
    *("prompt_logprobs", "prompt_token_ids", "prompt_text"),
    *("kv_transfer_params", "ec_transfer_params"),
)


class _Message(Struct, gc=False):
    content: Raw = NULL
    reasoning: Raw = NULL
    reasoning_content: Raw = NULL


_decode_message = msgspec.json.Decoder(_Message).decode


def split(
    endpoint: Endpoint,
    answer: bytes,
    counts: Sequence[int],
    weights: Sequence[Sequence[int]],
    model: bytes,
) -> list[tuple[bytes, TokenUsage | None]] | None:
    """Each member's answer and its share of the usage (None if the upstream reports none).

    `counts` are the numbers of items per member in the order sent, `weights` the estimated tokens of each
    item, `model` the public name as a JSON string. Returns None if the answer does not match the request.
    """
    parsed = read_items(endpoint, answer, sum(counts))
    if parsed is None:
        return None
    fields, items = parsed
    if len(counts) > 1 and any(bytes(fields.get(name, NULL)) != b"null" for name in _SINGLE_PROMPT):
        return None
    spans = list(pairwise(accumulate(counts, initial=0)))
    parts = [items[start:end] for start, end in spans]
    outputs = [sum(map(_output_size, part)) if endpoint.generates else 0 for part in parts]
    usage = split_usage(fields.get("usage", NULL), list(map(sum, weights)), outputs)
    out: list[tuple[bytes, TokenUsage | None]] = []
    for at, (part, (block, tokens)) in enumerate(zip(parts, usage, strict=True)):
        member = {**fields, "usage": block} if "usage" in fields else fields
        out.append((_render(endpoint, member, enumerate(part), model, at), tokens))
    return out


def join(
    endpoint: Endpoint, answers: Sequence[bytes], offsets: Sequence[int], model: bytes, total: int
) -> tuple[bytes, TokenUsage | None] | None:
    """One answer, with its summed usage, to a list of `total` items that was sent in parts at `offsets`.

    Usage is None if the upstream reports none. Returns None if an answer does not match its part.
    """
    first: dict[str, Raw] = {}
    items: list[_Item] = []
    blocks: list[Raw] = []
    for answer, (start, end) in zip(answers, pairwise([*offsets, total]), strict=True):
        parsed = read_items(endpoint, answer, end - start)
        if parsed is None:
            return None
        first = first or parsed[0]
        items += parsed[1]
        blocks.append(parsed[0].get("usage", NULL))
    usage, tokens = sum_usage(blocks)
    fields = {**first, "usage": usage} if "usage" in first else first
    return _render(endpoint, fields, enumerate(items), model, 0), tokens


def _list_name(endpoint: Endpoint) -> str:
    return "choices" if endpoint.generates else "data"


def read_items(endpoint: Endpoint, answer: bytes, count: int) -> tuple[dict[str, Raw], list[_Item]] | None:
    """The members of an answer and its `count` items in the order of the request; None if in doubt."""
    name = _list_name(endpoint)
    parsed = _read_once(name, answer)
    try:
        if parsed is None:
            fields = _decode(answer)
            parsed = fields, _decode_items(fields.get(name, NULL))
    except (msgspec.DecodeError, RecursionError):
        return None
    fields, items = parsed
    if len(items) != count or not all(_has_content(endpoint, item) for item in items):
        return None
    indexes = [bytes(item.get("index", b"")) for item in items]
    places = _places(indexes) if endpoint.generates else item_order.order(indexes)
    return None if places is None else (fields, [items[place] for place in places])


def _places(indexes: Sequence[bytes]) -> list[int] | None:
    """For each index the place of its choice; None unless each index occurs exactly once."""
    places: dict[int, int] = {}
    for place, index in enumerate(indexes):
        if not index.isdigit() or len(index) > _MOST_DIGITS:
            return None
        places[int(index)] = place
    if len(places) != len(indexes) or max(places, default=-1) >= len(indexes):
        return None
    return [places[at] for at in range(len(indexes))]


def _read_once(name: str, answer: bytes) -> tuple[dict[str, Raw], list[dict[str, Raw]]] | None:
    """Members and items of an answer, reading the list, which is nearly all of it, only once.

    Exact when it succeeds: if a piece of the text is a JSON list, and the text with a placeholder instead of
    it is an object whose member `name` is the placeholder, then the text is that object with that list.
    """
    start = answer.find(b"[", answer.find(b'"%b"' % name.encode()))
    end = answer.rfind(b"]") + 1
    try:
        fields = _decode(answer[:start] + _PLACEHOLDER + answer[end:])
        if bytes(fields.get(name, NULL)) == _PLACEHOLDER:
            return fields, _decode_items(memoryview(answer)[start:end])
    except (msgspec.DecodeError, RecursionError):
        pass
    return None


def _has_content(endpoint: Endpoint, item: _Item) -> bool:
    if not endpoint.generates:
        return _first(item.get("embedding", b"")) in (b"[", b'"')
    if _failed(item):
        return False
    if not endpoint.conversation:
        return _first(item.get("text", b"")) == b'"'
    return _first(item.get("message", b"")) == b"{"


def _failed(choice: _Item) -> bool:
    """Whether a choice failed at its upstream."""
    reason = bytes(choice.get("finish_reason", NULL))
    return bytes(choice.get("error", NULL)) not in NO_ERROR or (
        reason.startswith(b'"') and failure_status(msgspec.json.decode(reason)) is not None
    )


def _first(value: bytes | Raw) -> bytes:
    """The first byte of a JSON value, which shows its type, without copying the value."""
    return bytes(memoryview(value)[:1])


def _output_size(choice: _Item) -> int:
    """The size of a choice's text, including reasoning."""
    if "text" in choice:
        texts = [choice["text"]]
    else:
        message = _decode_message(choice["message"])
        texts = [message.content, message.reasoning, message.reasoning_content]
    return sum(size(bytes(text)[1:-1]) for text in texts if _first(text) == b'"')


def _render(
    endpoint: Endpoint,
    fields: Mapping[str, bytes | Raw],
    items: Iterable[tuple[int, _Item]],
    model: bytes,
    member: int,
) -> bytes:
    """The answer of one member with these items as its list; ids stay unique."""
    list_name = _list_name(endpoint)
    out: list[bytes | Raw] = []
    for name, value in fields.items():
        out += (b",", msgspec.json.encode(name), b":")
        if name == list_name:
            out += _render_items(items)
        elif name == "model" and _first(value) == b'"':
            out.append(model)
        elif name == "id" and member and _first(value) == b'"':
            out.append(b'%b-%d"' % (bytes(value)[:-1], member))
        else:
            out.append(value)
    out[0] = b"{"
    out.append(b"}")
    return b"".join(out)


def _render_items(items: Iterable[tuple[int, _Item]]) -> Iterator[bytes | Raw]:
    """The list, with its items renumbered."""
    separator = b"["
    for index, item in items:
        yield separator
        opening = b'{"'
        numbered = item if "index" in item else {**item, "index": NULL}
        for name, value in numbered.items():
            yield b'%b%b":' % (opening, msgspec.json.encode(name)[1:-1])
            yield b"%d" % index if name == "index" else value
            opening = b',"'
        yield b"}"
        separator = b","
    yield b"]"
