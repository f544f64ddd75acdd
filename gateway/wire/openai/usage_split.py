"""Splits the usage of one upstream call among the members of a batch, and sums the usage of several calls."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec
from msgspec import Raw

from gateway.core.call import TokenUsage
from gateway.wire.openai import usage

_decode = msgspec.json.Decoder(dict[str, Raw]).decode

_MOST_DIGITS: Final = 15
_DEPTH: Final = 2
"""Levels of objects: usage itself and its details. Deeper ones are copied unchanged."""


def shares(total: int, weights: Sequence[int], least: int = 0) -> list[int]:
    """Integer shares of `total` in proportion to the weights (largest remainder method); they sum to `total`.

    Each is at least `least` (0 or 1) if the total allows, at the expense of the largest shares.
    """
    weight_sum = sum(weights)
    if not weight_sum:
        weights, weight_sum = [1] * len(weights), len(weights)
    out = [total * weight // weight_sum for weight in weights]
    by_remainder = sorted(range(len(out)), key=lambda at: -(total * weights[at] % weight_sum))
    for at in by_remainder[: total - sum(out)]:
        out[at] += 1
    if least and total >= len(out):
        for at, share in enumerate(out):
            if not share:
                out[out.index(max(out))] -= 1
                out[at] = 1
    return out


def split_usage(
    block: Raw, inputs: Sequence[int], outputs: Sequence[int]
) -> list[tuple[bytes | Raw, TokenUsage | None]]:
    """A usage block per member, and its counts; all counts sum to the upstream's.

    Input is split by the members' estimated inputs, output by the sizes of their answers, and details like
    the totals they belong to. A value that is not a count is copied to every member.
    """
    fields = _read(block)
    if fields is None:
        return [(block, None)] * len(inputs)
    prompts = _split_count(fields, "prompt_tokens", inputs)
    answers = _split_count(fields, "completion_tokens", outputs)
    both = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    divided: dict[str, Sequence[object]] = {}
    for name, value in fields.items():
        if name == "total_tokens":
            divided[name] = _divided(value, both if any(both) else inputs)
        elif name == "prompt_tokens":
            divided[name] = prompts if _count(value) is not None else [value] * len(inputs)
        elif name == "completion_tokens":
            divided[name] = answers if _count(value) is not None else [value] * len(inputs)
        elif name.startswith("completion_"):
            divided[name] = _divided(value, answers)
        else:
            divided[name] = _divided(value, prompts if any(prompts) else inputs)
    blocks = [msgspec.json.encode({name: values[at] for name, values in divided.items()}) for at in range(len(inputs))]
    return [(each, usage.tokens(Raw(each))) for each in blocks]


def sum_usage(blocks: Sequence[Raw]) -> tuple[bytes | Raw, TokenUsage | None]:
    """One usage block for several calls that answer one request, and its counts.

    Calls without usage count as 0; if none has any, the first block is returned unchanged.
    """
    readable = [fields for fields in map(_read, blocks) if fields is not None]
    if not readable:
        return blocks[0], None
    total = msgspec.json.encode(_sum(readable))
    return total, usage.tokens(Raw(total))


def _read(block: Raw) -> dict[str, Raw] | None:
    try:
        return _decode(block)
    except (msgspec.DecodeError, RecursionError):
        return None


def _count(value: Raw) -> int | None:
    text = bytes(value)
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def _split_count(fields: Mapping[str, Raw], name: str, weights: Sequence[int]) -> list[int]:
    count = _count(fields[name]) if name in fields else None
    return shares(count or 0, weights, least=1)


def _divided(value: Raw, weights: Sequence[int], depth: int = _DEPTH - 1) -> Sequence[object]:
    """The shares of a count, of each member of an object, or copies of any other value."""
    count = _count(value)
    if count is not None:
        return shares(count, weights)
    fields = _read(value) if depth else None
    if fields is None:
        return [value] * len(weights)
    parts = {name: _divided(each, weights, depth - 1) for name, each in fields.items()}
    return [{name: part[at] for name, part in parts.items()} for at in range(len(weights))]


def _sum(objects: Sequence[Mapping[str, Raw]], depth: int = _DEPTH - 1) -> dict[str, object]:
    out: dict[str, object] = {}
    for name in dict.fromkeys(chain.from_iterable(objects)):
        values = [fields[name] for fields in objects if name in fields]
        counts = [count for count in map(_count, values) if count is not None]
        inner = [fields for fields in map(_read, values) if fields is not None] if depth else []
        out[name] = sum(counts) if counts else _sum(inner, depth - 1) if inner else values[0]
    return out
