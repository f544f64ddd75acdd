"""The answer to a merged call, taken apart by `index`; and answers to the parts of one long list, joined.

An answer that is not exactly what was asked for is not used at all: who an item belongs to is known by its
index alone, and one that is wrong makes all the others doubtful. Vectors and texts stay the upstream's bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.call import COMPLETIONS, EMBEDDINGS, TokenUsage
from gateway.wire.openai import peek as openai
from gateway.wire.openai.item_weight import size
from gateway.wire.openai.usage_split import split_usage, sum_usage

_Item = Mapping[str, Raw]
_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[dict[str, Raw]]).decode

_MOST_DIGITS: Final = 9
_PLACEHOLDER: Final = b"[[]]"
# Members that tell of one prompt; in an answer to several callers they would be somebody else's.
_OF_ONE: Final = (
    *("prompt_logprobs", "prompt_token_ids", "prompt_text"),
    *("kv_transfer_params", "ec_transfer_params"),
)


class _Message(Struct, gc=False):
    content: Raw = openai.NULL
    reasoning: Raw = openai.NULL
    reasoning_content: Raw = openai.NULL


_decode_message = msgspec.json.Decoder(_Message).decode


def split(
    endpoint: str,
    answer: bytes,
    counts: Sequence[int],
    weights: Sequence[Sequence[int]],
    model: bytes,
) -> list[tuple[bytes, TokenUsage | None]] | None:
    """Each member's own answer, and its share of the usage (None where the upstream tells none).

    `counts` are the members' items in the order in which they were sent, `weights` the estimated tokens of
    each, `model` the public name as a JSON string. None: the answer does not fit, and nobody may have it.
    """
    found = read_items(endpoint, answer, sum(counts))
    if found is None:
        return None
    fields, items = found
    if len(counts) > 1 and any(bytes(fields.get(name, openai.NULL)) != b"null" for name in _OF_ONE):
        return None
    spans = list(pairwise(accumulate(counts, initial=0)))
    own = [items[start:end] for start, end in spans]
    outputs = [0 if endpoint == EMBEDDINGS else sum(map(_generated, mine)) for mine in own]
    usage = split_usage(fields.get("usage", openai.NULL), [sum(one) for one in weights], outputs)
    out: list[tuple[bytes, TokenUsage | None]] = []
    for at, (mine, (block, tokens)) in enumerate(zip(own, usage, strict=True)):
        theirs = {**fields, "usage": block} if "usage" in fields else fields
        out.append((_render(endpoint, theirs, enumerate(mine), model, at), tokens))
    return out


def join(
    endpoint: str, answers: Sequence[bytes], offsets: Sequence[int], model: bytes, total: int
) -> tuple[bytes, TokenUsage | None] | None:
    """One answer to a list of `total` items that was sent in parts, beginning at `offsets`; and its usage.

    Usage is summed; None where the upstream tells none. None for all: an answer does not fit its part.
    """
    first: dict[str, Raw] = {}
    items: list[_Item] = []
    blocks: list[Raw] = []
    for answer, (start, end) in zip(answers, pairwise([*offsets, total]), strict=True):
        found = read_items(endpoint, answer, end - start)
        if found is None:
            return None
        first = first or found[0]
        items += found[1]
        blocks.append(found[0].get("usage", openai.NULL))
    usage, tokens = sum_usage(blocks)
    fields = {**first, "usage": usage} if "usage" in first else first
    return _render(endpoint, fields, enumerate(items), model, 0), tokens


def _list_name(endpoint: str) -> str:
    return "data" if endpoint == EMBEDDINGS else "choices"


def read_items(endpoint: str, answer: bytes, count: int) -> tuple[dict[str, Raw], list[_Item]] | None:
    """The members of an answer, and its items in the order of their index: each of `count` exactly once."""
    name = _list_name(endpoint)
    found = _read_once(name, answer)
    try:
        if found is None:
            fields = _decode(answer)
            found = fields, _decode_items(fields.get(name, openai.NULL))
    except (msgspec.DecodeError, RecursionError):
        return None
    fields, items = found
    placed: dict[int, _Item] = {}
    for item in items:
        index = bytes(item.get("index", b""))
        if not index.isdigit() or len(index) > _MOST_DIGITS or not _has_content(endpoint, item):
            return None
        placed[int(index)] = item
    if len(items) != count or len(placed) != count or max(placed, default=-1) >= count:
        return None
    return fields, [placed[at] for at in range(count)]


def _read_once(name: str, answer: bytes) -> tuple[dict[str, Raw], list[dict[str, Raw]]] | None:
    """Members and items of an answer without reading the list, which is nearly all of it, twice.

    Exact where it succeeds: if one piece of a text is a JSON list, and the rest with another value in its
    place is an object that has this value as its `name`, then so is the text, with that list.
    """
    start = answer.find(b"[", answer.find(b'"%b"' % name.encode()))
    end = answer.rfind(b"]") + 1
    try:
        fields = _decode(answer[:start] + _PLACEHOLDER + answer[end:])
        if bytes(fields.get(name, openai.NULL)) == _PLACEHOLDER:
            return fields, _decode_items(memoryview(answer)[start:end])
    except (msgspec.DecodeError, RecursionError):
        pass
    return None


def _has_content(endpoint: str, item: _Item) -> bool:
    if endpoint == EMBEDDINGS:
        return _first(item.get("embedding", b"")) in (b"[", b'"')
    if endpoint == COMPLETIONS:
        return _first(item.get("text", b"")) == b'"'
    return _first(item.get("message", b"")) == b"{"


def _first(value: bytes | Raw) -> bytes:
    """Its first byte, which tells of what type it is; a vector is not copied for that."""
    return bytes(memoryview(value)[:1])


def _generated(choice: _Item) -> int:
    """The size of its text, reasoning included."""
    if "text" in choice:
        texts = [choice["text"]]
    else:
        message = _decode_message(choice["message"])
        texts = [message.content, message.reasoning, message.reasoning_content]
    return sum(size(bytes(text)[1:-1]) for text in texts if _first(text) == b'"')


def _render(
    endpoint: str,
    fields: Mapping[str, bytes | Raw],
    items: Iterable[tuple[int, _Item]],
    model: bytes,
    member: int,
) -> bytes:
    """The answer with these items as its list, for a member: ids stay unique."""
    listed = _list_name(endpoint)
    out: list[bytes | Raw] = []
    for name, value in fields.items():
        out += (b",", msgspec.json.encode(name), b":")
        if name == listed:
            out += _rendered(items)
        elif name == "model" and _first(value) == b'"':
            out.append(model)
        elif name == "id" and member and _first(value) == b'"':
            out.append(b'%b-%d"' % (bytes(value)[:-1], member))
        else:
            out.append(value)
    out[0] = b"{"
    out.append(b"}")
    return b"".join(out)


def _rendered(items: Iterable[tuple[int, _Item]]) -> Iterator[bytes | Raw]:
    """The list, its items numbered anew."""
    separator = b"["
    for index, item in items:
        yield separator
        opening = b'{"'
        for name, value in item.items():
            yield b'%b%b":' % (opening, msgspec.json.encode(name)[1:-1])
            yield b"%d" % index if name == "index" else value
            opening = b',"'
        yield b"}"
        separator = b","
    yield b"]"
