"""Context windows: what a call that did not fit needs, and which other models have room for it."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway.core.call import EMBEDDINGS, Call, Candidate, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller
from gateway.usage.cost import cost
from gateway.usage.estimator import FIRST_GUESS
from gateway.wire.openai.overflow_messages import Overflow

_EMBEDS: Final = re.compile(r"embed|\b(?:bge|e5|gte|minilm)\b", re.IGNORECASE)
"""Names of models that make vectors: no place for a conversation, however large their window."""

_NEAR: Final = 0.98
"""An answer that ends this near to the window's end has met it: engines keep a few tokens for themselves."""


class ContextWindows:
    """The context windows of candidates: as declared, else as their upstreams have told.

    An upstream's words may quote a client's, so nothing but a label depends on what was told.
    """

    def __init__(self) -> None:
        self._met: dict[Candidate, int] = {}

    def of(self, candidate: Candidate) -> int | None:
        """Tokens, None while nobody has told."""
        return candidate.context_window or self._met.get(candidate)

    def met(self, candidate: Candidate, limit: int | None) -> None:
        """A call was too long for it; its upstream named this limit."""
        if limit:
            self._met[candidate] = limit


class PromptRequirement(NamedTuple):
    """Tokens of a call that did not fit: of its prompt, the most that its answer may take, and the window.

    `limit` is 0 where nobody knows it, `answer` where the client set no bound. `counted` tells that the
    upstream has counted `prompt`, `reserved` that it keeps place for all of `answer`.
    """

    prompt: int
    answer: int
    limit: int
    counted: bool
    reserved: bool

    @property
    def whole(self) -> int:
        """Of prompt and answer together; at least one more than the prompt."""
        return self.prompt + max(1, self.answer)

    @property
    def room(self) -> int:
        """Tokens that a shorter prompt may have, so that an answer of some length still fits behind it."""
        kept = self.answer if self.reserved else min(self.answer or FIRST_GUESS, self.limit // 4)
        return self.limit - kept


def need(told: Overflow, window: int | None, estimate: TokenEstimate) -> PromptRequirement:
    """What the upstream has told, filled up from the candidate's window and our own estimate."""
    limit = told.limit or window or 0
    answer = told.answer or (estimate.output // max(1, estimate.choices) if estimate.capped else 0)
    if told.needed is not None:
        return PromptRequirement(told.needed - told.answer, answer, limit, True, bool(told.answer))
    # An estimate by which it would have fitted is wrong.
    return PromptRequirement(max(estimate.input, limit), answer, limit, False, False)


def larger(
    call: Call, routes: Iterable[Route], needed: PromptRequirement, uses: frozenset[str]
) -> list[Route]:
    """The other models that the call's key may use and that declare a window large enough, cheapest first.

    `uses` is what they must be capable of. Each has only those of its candidates that will do. Prices that
    are not known come last, and not at all where the key's dollars are counted.
    """
    found: list[tuple[tuple[bool, int], Route]] = []
    for route in routes:
        if call.route is None or route.name == call.route.name or not _allows(call.caller, route):
            continue
        fitting = tuple(
            one
            for one in route.candidates
            if (one.context_window or 0) >= max(needed.whole, needed.limit + 1)
            and (one.capabilities is None or uses <= one.capabilities)
            and bool(_EMBEDS.search(one.model)) == (call.endpoint == EMBEDDINGS)
            and _affordable(call, one, needed)
        )
        if fitting:
            costs = [_dollars(call, one, needed) for one in fitting]
            rank = min((nanos is None, nanos or 0) for nanos in costs)
            found.append((rank, Route(route.name, route.encoded, fitting)))
    return [route for _, route in sorted(found, key=lambda one: one[0])]


def explained(
    message: str, needed: PromptRequirement, others: Iterable[tuple[str, int]], *, shortened: bool
) -> str:
    """The upstream's own words, and behind them the numbers and what would help.

    `others` are models with room, and their windows. `shortened`: that was tried, and was not enough.
    """
    told = [message if message.endswith((".", "!", "?")) else f"{message}."]
    asked = needed.prompt + (needed.answer if needed.reserved else 0)
    about = "" if needed.counted else "about "
    if needed.limit:
        over = asked - needed.limit
        beyond = f", {over} too many" if over > 0 else ""
        told.append(f"It needs {about}{asked} tokens, the limit is {needed.limit}{beyond}.")
    elif needed.counted:
        told.append(f"It needs {asked} tokens.")
    if shortened:
        told.append(
            "It cannot be made short enough: what must stay of it is too long."
            if needed.limit
            else "It cannot be made shorter, because nobody tells how long it may be."
        )
    listed = ", ".join(f"`{name}` ({window})" for name, window in others)
    told.append(
        f"Models here with a context window that is large enough: {listed}."
        if listed
        else "No other model that you may use here is known to have a context window large enough."
    )
    return " ".join(told)


def cause(used: TokenUsage | None, estimate: TokenEstimate, window: int | None) -> str:
    """What an answer that was cut short has met: `cap`, a bound on the output, or `window`.

    The bound may be the upstream's own. Where it has counted nothing, a bound of the client's is believed.
    """
    if used is None:
        return "cap" if estimate.capped else "window"
    if estimate.capped and used.output >= estimate.output // max(1, estimate.choices):
        return "cap"
    return "window" if window is None or used.input + used.output >= window * _NEAR else "cap"


def _allows(caller: Caller | None, route: Route) -> bool:
    return caller is None or caller.may_use(route.name)


def _affordable(call: Call, candidate: Candidate, needed: PromptRequirement) -> bool:
    account = call.caller.account if call.caller is not None else None
    nanos = _dollars(call, candidate, needed)
    if nanos is None:
        return account is None or account.limits.usd_per_day is None
    return call.ceiling is None or nanos <= call.ceiling


def _dollars(call: Call, candidate: Candidate, needed: PromptRequirement) -> int | None:
    """Nano-dollars of this call there, about; None where the price is not known."""
    if candidate.price is None:
        return None
    answer = 0 if call.endpoint == EMBEDDINGS else needed.answer or FIRST_GUESS
    return cost(TokenUsage(needed.prompt, answer), candidate.price)
