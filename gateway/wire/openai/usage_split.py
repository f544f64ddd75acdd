"""The usage of one upstream call, shared out to those who took part in it; or that of several, summed up."""

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
"""Of objects: usage itself, and its details. What is deeper is left as it is."""


def shares(total: int, weights: Sequence[int], least: int = 0) -> list[int]:
    """`total` in proportion to the weights, by largest remainder: the shares are whole and sum up to it.

    Each is at least `least` (0 or 1) where the total allows; then the largest ones give.
    """
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    out = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(out)), key=lambda at: -(total * weights[at] % whole))
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
    """A usage block for each member, and what it says; all counts sum up to the upstream's.

    Input is shared by the members' estimated inputs, output by the sizes of their answers, and details by
    what they are details of. What is no count is left to everybody as it is, as if it had come to each alone.
    """
    told = _read(block)
    if told is None:
        return [(block, None)] * len(inputs)
    prompts = _counted(told, "prompt_tokens", inputs)
    answers = _counted(told, "completion_tokens", outputs)
    both = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
    divided: dict[str, Sequence[object]] = {}
    for name, value in told.items():
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
    blocks = [
        msgspec.json.encode({name: values[at] for name, values in divided.items()})
        for at in range(len(inputs))
    ]
    return [(one, usage.tokens(Raw(one))) for one in blocks]


def sum_usage(blocks: Sequence[Raw]) -> tuple[bytes | Raw, TokenUsage | None]:
    """One usage block for several calls that answer one request, and what it says.

    Calls without usage count as nothing; where none has any, the first one's word stands.
    """
    known = [told for told in map(_read, blocks) if told is not None]
    if not known:
        return blocks[0], None
    summed = msgspec.json.encode(_summed(known))
    return summed, usage.tokens(Raw(summed))


def _read(block: Raw) -> dict[str, Raw] | None:
    try:
        return _decode(block)
    except (msgspec.DecodeError, RecursionError):
        return None


def _count(value: Raw) -> int | None:
    text = bytes(value)
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def _counted(told: Mapping[str, Raw], name: str, weights: Sequence[int]) -> list[int]:
    count = _count(told[name]) if name in told else None
    return shares(count or 0, weights, least=1)


def _divided(value: Raw, weights: Sequence[int], depth: int = _DEPTH - 1) -> Sequence[object]:
    """A count in shares, an object member by member, and anything else to everybody."""
    count = _count(value)
    if count is not None:
        return shares(count, weights)
    inner = _read(value) if depth else None
    if inner is None:
        return [value] * len(weights)
    parts = {name: _divided(one, weights, depth - 1) for name, one in inner.items()}
    return [{name: part[at] for name, part in parts.items()} for at in range(len(weights))]


def _summed(objects: Sequence[Mapping[str, Raw]], depth: int = _DEPTH - 1) -> dict[str, object]:
    out: dict[str, object] = {}
    for name in dict.fromkeys(chain.from_iterable(objects)):
        values = [one[name] for one in objects if name in one]
        counts = [count for count in map(_count, values) if count is not None]
        inner = [one for one in map(_read, values) if one is not None] if depth else []
        out[name] = sum(counts) if counts else _summed(inner, depth - 1) if inner else values[0]
    return out
