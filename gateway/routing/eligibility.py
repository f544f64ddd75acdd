"""Which candidates can take a call at all: what they can do, how much fits, what the key can still pay."""

from collections.abc import Collection, Sequence
from typing import Final

from gateway.core.call import CHAT, EMBEDDINGS, Call, Candidate, TokenEstimate, TokenUsage
from gateway.core.errors import INVALID_VALUE, Rejection
from gateway.usage.cost import cost

_PARAMS: Final = {
    "tools": "tools",
    "vision": "messages",
    "json_schema": "response_format",
    "audio": "messages",
}


def capable(candidates: Sequence[Candidate], needed: Collection[str]) -> Sequence[Candidate]:
    """Those that can do all of it, as far as they tell."""
    if not needed:
        return candidates
    return [one for one in candidates if one.capabilities is None or one.capabilities.issuperset(needed)]


def incapable(model: str, candidates: Sequence[Candidate], needed: Collection[str]) -> Rejection:
    """Tells one whose call nobody can serve."""
    lacking = [name for name in sorted(needed) if not capable(candidates, (name,))]
    what = " and ".join(f"`{name}`" for name in lacking or sorted(needed))
    nobody = "no upstream of it offers that" if lacking else "no upstream of it offers these together"
    return Rejection(
        INVALID_VALUE,
        f"The model `{model}` cannot serve this request: it needs {what}, and {nobody}.",
        _PARAMS[(lacking or sorted(needed))[0]],
    )


def roomy(candidates: Sequence[Candidate], estimate: TokenEstimate, endpoint: str) -> Sequence[Candidate]:
    """Those that hold the prompt with its answer; where nobody does, the largest: its upstream may say so.

    A list of prompts or inputs is not measured: each item of it has a window of its own.
    """
    if endpoint == EMBEDDINGS:
        return candidates
    answer = estimate.output // estimate.choices if estimate.capped else 0
    whole = estimate.input + answer if endpoint == CHAT else 0
    for one in candidates:
        if (one.context_window or whole) < whole or (one.max_output or answer) < answer:
            break
    else:
        return candidates
    held = [
        (
            whole if one.context_window is None or one.context_window > whole else one.context_window,
            answer if one.max_output is None or one.max_output > answer else one.max_output,
        )
        for one in candidates
    ]
    most = max(held)
    return [one for one, fits in zip(candidates, held, strict=True) if fits == most]


def affordable(call: Call, candidate: Candidate) -> bool:
    """Whether what it is expected to cost there is within what its key has left for it."""
    if call.ceiling is None:
        return True
    nanos = expected(call.estimate, candidate)
    return nanos is not None and nanos <= call.ceiling


def expected_all(estimate: TokenEstimate, candidates: Sequence[Candidate]) -> list[int | None]:
    """The same for each of these, with nothing cached."""
    tokens = TokenUsage(estimate.input, estimate.output)
    return [None if one.price is None else cost(tokens, one.price) for one in candidates]


def expected(estimate: TokenEstimate | None, candidate: Candidate, cached: int = 0) -> int | None:
    """Nano-dollars for this call there, with so many tokens of its input cached; 0 without an estimate.

    None where the price is not known.
    """
    if candidate.price is None:
        return None
    if estimate is None:
        return 0
    return cost(TokenUsage(estimate.input, estimate.output, cached), candidate.price)
