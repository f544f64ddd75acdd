"""Vectors of an embeddings answer one by one: taken out to be kept, and put into another answer."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from gateway.call import EMBEDDINGS
from gateway.wire.members import edited, members, object_of
from gateway.wire.merged_answer import read_items

Fields = Mapping[str, bytes | Raw]

_LIST: Final = "data"


def narrowed(body: bytes, items: Sequence[bytes]) -> bytes:
    """The request with these items (JSON) as its `input`, which it has once; everything else as it was."""
    wanted = b"[%b]" % b",".join(items)
    edits = [(one.value, one.end, wanted) for one in members(body) if one.called("input")]
    return b"".join(edited(body, edits))


def items_of(answer: bytes, count: int) -> tuple[Fields, list[bytes]] | None:
    """The members of an answer, and its `count` items in order, unnumbered; None if it lacks one."""
    found = read_items(EMBEDDINGS, answer, count)
    if found is None:
        return None
    fields, items = found
    return fields, [object_of({name: one for name, one in item.items() if name != "index"}) for item in items]


def joined(fields: Fields, items: Sequence[bytes]) -> bytes:
    """An answer with these items in this order."""
    # An item that is kept is an object with something in it, so a comma follows.
    numbered = [b'%b,"index":%d}' % (item[:-1], at) for at, item in enumerate(items)]
    return object_of({**fields, _LIST: b"[%b]" % b",".join(numbered)})


def nothing_used(model: bytes) -> Fields:
    """The members of an answer that no upstream has made; `model` is the public name as JSON."""
    usage = msgspec.json.encode({"prompt_tokens": 0, "total_tokens": 0})
    return {"object": b'"list"', _LIST: b"[]", "model": model, "usage": usage}
