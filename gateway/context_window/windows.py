"""Context windows: what an overflowing call needs, and which other models have room for it."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway.core.call import Call, Candidate, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller
from gateway.usage.cost import cost
from gateway.usage.estimator import FIRST_GUESS
from gateway.wire.openai.overflow_messages import Overflow

_EMBEDS: Final = re.compile(r"embed|\b(?:bge|e5|gte|minilm)\b", re.IGNORECASE)
"""Names of embedding models, which cannot serve a conversation however large their window is."""

_NEAR: Final = 0.98
"""Share of the window from which an answer counts as ended by it: engines reserve a few tokens."""


class ContextWindows:
    """The context windows of candidates: declared, or learned from their upstreams' errors.

    Errors may quote the client's text, so a learned window affects nothing but a label.
    """

    def __init__(self) -> None:
        self._learned: dict[Candidate, int] = {}

    def of(self, candidate: Candidate) -> int | None:
        """Return the window in tokens, None if unknown."""
        return candidate.context_window or self._learned.get(candidate)

    def learn(self, candidate: Candidate, limit: int | None) -> None:
        """Store the limit that an upstream's overflow error names."""
        if limit:
            self._learned[candidate] = limit


class PromptRequirement(NamedTuple):
    """Tokens of an overflowing call: its prompt, the cap of its answer, and the window.

    `limit` is 0 if unknown, `answer` is 0 without a cap. `counted`: the upstream counted `prompt`.
    `reserved`: the upstream reserves room for all of `answer`.
    """

    prompt: int
    answer: int
    limit: int
    counted: bool
    reserved: bool

    @property
    def total(self) -> int:
        """Tokens of prompt and answer together; at least one more than the prompt."""
        return self.prompt + max(1, self.answer)

    @property
    def room(self) -> int:
        """Tokens for a trimmed prompt that leave room for a reasonable answer."""
        answer = self.answer if self.reserved else min(self.answer or FIRST_GUESS, self.limit // 4)
        return self.limit - answer


def need(overflow: Overflow, window: int | None, estimate: TokenEstimate) -> PromptRequirement:
    """Complete the upstream's numbers with the candidate's window and the estimate."""
    limit = overflow.limit or window or 0
    answer = overflow.answer or (estimate.output // max(1, estimate.choices) if estimate.capped else 0)
    if overflow.needed is not None:
        return PromptRequirement(overflow.needed - overflow.answer, answer, limit, True, bool(overflow.answer))
    # The prompt did not fit, so it has at least `limit` tokens.
    return PromptRequirement(max(estimate.input, limit), answer, limit, False, False)


def larger(call: Call, routes: Iterable[Route], needed: PromptRequirement, uses: frozenset[str]) -> list[Route]:
    """Return the other models that the key may use and that declare a large enough window, cheapest first.

    `uses` lists the required capabilities. Each route has only its suitable candidates. Unknown prices come
    last, and are excluded for keys with a dollar budget.
    """
    ranked: list[tuple[tuple[bool, int], Route]] = []
    for route in routes:
        if route.name == call.routing.route.name or not _allows(call.caller, route):
            continue
        fitting = tuple(
            candidate
            for candidate in route.candidates
            if (candidate.context_window or 0) >= max(needed.total, needed.limit + 1)
            and (candidate.capabilities is None or uses <= candidate.capabilities)
            and bool(_EMBEDS.search(candidate.model)) != call.request.endpoint.generates
            and _affordable(call, candidate, needed)
        )
        if fitting:
            costs = [_nanos(call, candidate, needed) for candidate in fitting]
            rank = min((nanos is None, nanos or 0) for nanos in costs)
            ranked.append((rank, Route(route.name, route.encoded, fitting)))
    return [route for _, route in sorted(ranked, key=lambda entry: entry[0])]


def explained(
    message: str, needed: PromptRequirement, alternatives: Iterable[tuple[str, int]], *, shortened: bool
) -> str:
    """Return the upstream's message, followed by the numbers and by what would help.

    `alternatives` are models with room, and their windows. `shortened`: trimming was not enough.
    """
    sentences = [message if message.endswith((".", "!", "?")) else f"{message}."]
    required = needed.prompt + (needed.answer if needed.reserved else 0)
    about = "" if needed.counted else "about "
    if needed.limit:
        excess = required - needed.limit
        beyond = f", {excess} too many" if excess > 0 else ""
        sentences.append(f"It needs {about}{required} tokens, the limit is {needed.limit}{beyond}.")
    elif needed.counted:
        sentences.append(f"It needs {required} tokens.")
    if shortened:
        sentences.append(
            "It cannot be trimmed enough: the part that must stay is too long."
            if needed.limit
            else "It cannot be trimmed, because the limit is not known."
        )
    models = ", ".join(f"`{name}` ({window})" for name, window in alternatives)
    sentences.append(
        f"Models here with a large enough context window: {models}."
        if models
        else "No other model that you may use here is known to have a large enough context window."
    )
    return " ".join(sentences)


def cause(used: TokenUsage | None, estimate: TokenEstimate, window: int | None) -> str:
    """Return what truncated an answer: `cap`, a limit on the output, or `window`.

    The cap may be the upstream's own. Without the upstream's count, a cap set by the client is assumed.
    """
    if used is None:
        return "cap" if estimate.capped else "window"
    if estimate.capped and used.output >= estimate.output // max(1, estimate.choices):
        return "cap"
    return "window" if window is None or used.input + used.output >= window * _NEAR else "cap"


def _allows(caller: Caller, route: Route) -> bool:
    return caller.may_use(route.name)


def _affordable(call: Call, candidate: Candidate, needed: PromptRequirement) -> bool:
    account = call.caller.account
    nanos = _nanos(call, candidate, needed)
    if nanos is None:
        return account is None or account.limits.usd_per_day is None
    return call.routing.ceiling is None or nanos <= call.routing.ceiling


def _nanos(call: Call, candidate: Candidate, needed: PromptRequirement) -> int | None:
    """Return the approximate nano-dollars of this call at a candidate; None if the price is unknown."""
    if candidate.price is None:
        return None
    answer = needed.answer or FIRST_GUESS if call.request.endpoint.generates else 0
    return cost(TokenUsage(needed.prompt, answer), candidate.price)
