"""The order of an answer's embeddings, also where `index` is missing, odd or the same in all of them.

Some providers leave out an index of 0, send 0 for every item, count from 1, or begin again at 0 with every
part that they have computed at once. All of those keep the list in order. An `index` that contradicts the
order of the list, without being part of a complete numbering, makes all of them doubtful.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_NUMBER: Final = re.compile(rb'"?[ \t]*(-?[0-9]{1,9})(?:\.0{1,9})?[ \t]*"?')


def order(indexes: Sequence[bytes]) -> list[int] | None:
    """For each position the place in the list of its item; None if the indexes are doubtful.

    `indexes` are JSON values in the order of the list, empty where an item has none.
    """
    count = len(indexes)
    in_order = list(range(count))
    if count == 1:
        return in_order
    numbers = [int(index) if index.isdigit() and len(index) < 10 else _number(index) for index in indexes]
    missing = numbers.count(None)
    filled = [number or 0 for number in numbers]
    if missing < 2 and sorted(filled) == in_order:
        return sorted(in_order, key=filled.__getitem__)
    same = len(set(filled)) == 1
    counted = missing == 0 and all(number == filled[0] + at for at, number in enumerate(filled))
    restarting = filled[:1] == [0] and all(number in (0, before + 1) for before, number in pairwise(filled))
    by_place = missing > 0 and all(number in (None, at) for at, number in enumerate(numbers))
    return in_order if same or counted or restarting or by_place else None


def _number(index: bytes) -> int | None:
    match = _NUMBER.fullmatch(index)
    return int(match[1]) if match is not None else None
