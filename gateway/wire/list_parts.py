"""A client's own list that is longer than its upstream takes: where it is cut, and positions in errors."""

import re
from collections.abc import Sequence
from typing import Final

_POSITION: Final = re.compile(
    r"""(
      \b(?:input|prompt)                            # input[3]   input.3   'input', 3
        (?:['"]?[.,]\s?['"]?list\[\S{0,40}\])?      # ... with the name of a type between, as Pydantic has it
        (?:\[|\.|['"],\s?)
    | \bindex[ ]?[ :=][ ]?                          # index 3   index: 3   index=3
    )
    ([0-9]{1,9})(?![0-9])""",
    re.VERBOSE,
)


def split_list(
    items: Sequence[bytes], weights: Sequence[int], max_inputs: int, max_tokens: int
) -> list[slice]:
    """Parts in order, as long as both bounds allow; an item that is too large itself is a part of its own."""
    parts: list[slice] = []
    start = tokens = 0
    for at in range(len(items)):
        if at > start and (at - start >= max_inputs or tokens + weights[at] > max_tokens):
            parts.append(slice(start, at))
            start, tokens = at, 0
        tokens += weights[at]
    return [*parts, slice(start, len(items))]


def shift_positions(message: str, offset: int) -> str:
    """An upstream's words about a part that begins at `offset`, in the numbering of the whole list."""
    return _POSITION.sub(lambda found: f"{found[1]}{int(found[2]) + offset}", message)
