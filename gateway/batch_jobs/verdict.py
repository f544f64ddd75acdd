"""What becomes of a line after an answer: it ends, it is sent again later, or its whole batch pauses."""

from typing import Final, Literal, NamedTuple

from gateway.core.errors import (
    INSUFFICIENT_QUOTA,
    REQUEST_SUSPENDED,
    REQUEST_TOO_LARGE,
    Rejection,
)

TRIES: Final = 3
"""How often a line is sent to upstreams that fail on it."""
_SHORTEST_S: Final = 0.05
_LONGEST_S: Final = 60.0
_BUDGET_S: Final = 60.0
_BACKOFF_S: Final = 1.0


BudgetState = Literal["", "too small", "reserved"]
"""Why a budget refuses a line: the line costs more than a whole day's; or calls under way have reserved the rest."""


class LineEnds(NamedTuple):
    """The line has its result."""


class LineWaits(NamedTuple):
    """The line is sent again after `seconds`, and so is every line of the same key or model if `shared`.

    `paused` is a sentence if the batch cannot go on without someone's help or another day. `counts`: it was
    a try.
    """

    seconds: float
    shared: Literal["", "key", "model"] = ""
    paused: str = ""
    counts: bool = False


ENDS: Final = LineEnds()


def judge(rejection: Rejection | None, tries: int, budget: BudgetState = "") -> LineEnds | LineWaits:
    """Judge a line that has failed `tries` times before; no rejection is an answer."""
    if rejection is None:
        return ENDS
    kind = rejection.kind
    if kind in (REQUEST_TOO_LARGE, REQUEST_SUSPENDED):
        return ENDS
    if kind is INSUFFICIENT_QUOTA and budget == "too small":
        return ENDS
    if kind is INSUFFICIENT_QUOTA and budget == "reserved":
        return LineWaits(_BACKOFF_S, "key")
    if kind is INSUFFICIENT_QUOTA:
        return LineWaits(_BUDGET_S, "key", rejection.message)
    wait = min(_LONGEST_S, max(_SHORTEST_S, rejection.retry_after or _BACKOFF_S))
    if kind.outcome == "limited":
        return LineWaits(wait, "key")
    if kind.outcome == "shed":
        return LineWaits(wait, "model")
    if kind.status in (429, 503):  # the upstream is busy or away: it may come back any time in the window
        return LineWaits(max(wait, _BACKOFF_S), "model")
    if kind.status in (500, 502, 504) and tries + 1 < TRIES:
        return LineWaits(min(_LONGEST_S, _BACKOFF_S * 4**tries), counts=True)
    return ENDS
