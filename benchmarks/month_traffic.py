"""The made-up traffic of `benchmarks.month`: callers, questions, times, and how often questions repeat."""

import random
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

DAYS: Final = 30
CALLS_A_DAY: Final = 240
BEGINS: Final = 1793491200.0  # 2026-11-01 00:00 UTC
_QUESTIONS: Final = 4000
_EXPONENT: Final = 1.05


class Kind(NamedTuple):
    """One sort of request: its key, model, frequency, and the lengths of question and answer."""

    key: str
    model: str
    weight: int
    system: int  # tokens that each begins with
    asked: tuple[int, int]
    answered: tuple[int, int]
    exact: bool  # temperature 0, so that its answer may be cached


KINDS: Final = (
    Kind("support", "faq", 50, 300, (10, 60), (40, 220), True),
    Kind("website", "assistant", 20, 1500, (20, 200), (80, 400), True),
    Kind("office", "assistant", 15, 1500, (100, 2500), (150, 900), False),
    Kind("office", "drafts", 13, 200, (200, 1200), (300, 1500), False),
    Kind("lab", "experiment", 2, 0, (100, 600), (50, 300), False),
)


class Ask(NamedTuple):
    """One request, `copies` times at the same moment."""

    at: float
    kind: Kind
    question: int
    copies: int


def traffic(rng: random.Random) -> Iterator[Ask]:
    """A month of it, more by day than by night."""
    popular = list(accumulate(1 / rank**_EXPONENT for rank in range(1, _QUESTIONS + 1)))
    for day in range(DAYS):
        moments = sorted(rng.triangular(0, 86400, 50000) for _ in range(CALLS_A_DAY))
        for moment in moments:
            kind = rng.choices(KINDS, [one.weight for one in KINDS])[0]
            question = rng.choices(range(_QUESTIONS), cum_weights=popular)[0]
            copies = rng.choice((2, 2, 3, 4)) if kind.exact and rng.random() < 0.03 else 1
            yield Ask(BEGINS + day * 86400 + moment, kind, question, copies)
