"""Which candidates can serve a call: by capability, context window and the key's remaining budget."""

from collections.abc import Collection, Sequence
from typing import Final

from gateway.core.call import Call, Candidate, TokenEstimate, TokenUsage
from gateway.core.endpoint import Endpoint
from gateway.core.errors import INVALID_VALUE, Rejection
from gateway.usage.cost import cost

_PARAMS: Final = {
    "tools": "tools",
    "vision": "messages",
    "json_schema": "response_format",
    "audio": "messages",
}


def capable(candidates: Sequence[Candidate], needed: Collection[str]) -> Sequence[Candidate]:
    """Return the candidates with all these capabilities; one that declares none has all."""
    if not needed:
        return candidates
    return [c for c in candidates if c.capabilities is None or c.capabilities.issuperset(needed)]


def incapable(model: str, candidates: Sequence[Candidate], needed: Collection[str]) -> Rejection:
    """Return the rejection of a call that no candidate has the capabilities for."""
    missing = [name for name in sorted(needed) if not capable(candidates, (name,))]
    named = missing or sorted(needed)
    reason = "none of its upstreams offers that" if missing else "none of its upstreams offers these together"
    return Rejection(
        INVALID_VALUE,
        f"The model `{model}` cannot serve this request: it needs "
        f"{' and '.join(f'`{name}`' for name in named)}, and {reason}.",
        _PARAMS[named[0]],
    )


def roomy(candidates: Sequence[Candidate], estimate: TokenEstimate, endpoint: Endpoint) -> Sequence[Candidate]:
    """Return the candidates whose window fits prompt and answer; if none does, the largest ones.

    A list of prompts or inputs is not measured, because each item has a window to itself.
    """
    if not endpoint.generates:
        return candidates
    answer = estimate.output // estimate.choices if estimate.capped else 0
    total = estimate.input + answer if endpoint.conversation else 0
    for candidate in candidates:
        if (candidate.context_window or total) < total or (candidate.max_output or answer) < answer:
            break
    else:
        return candidates
    rooms = [
        (
            total if c.context_window is None or c.context_window > total else c.context_window,
            answer if c.max_output is None or c.max_output > answer else c.max_output,
        )
        for c in candidates
    ]
    largest = max(rooms)
    return [candidate for candidate, room in zip(candidates, rooms, strict=True) if room == largest]


def affordable(call: Call, candidate: Candidate) -> bool:
    """Return whether the expected cost at this candidate is within the call's ceiling."""
    if call.routing.ceiling is None:
        return True
    nanos = expected(call.usage.estimate, candidate)
    return nanos is not None and nanos <= call.routing.ceiling


def expected_all(estimate: TokenEstimate, candidates: Sequence[Candidate]) -> list[int | None]:
    """Return the `expected` cost at each of these, with nothing cached."""
    tokens = TokenUsage(estimate.input, estimate.output)
    return [None if candidate.price is None else cost(tokens, candidate.price) for candidate in candidates]


def expected(estimate: TokenEstimate | None, candidate: Candidate, cached: int = 0) -> int | None:
    """Return the expected nano-dollars of a call with `cached` input tokens; 0 without an estimate.

    None if the price is unknown.
    """
    if candidate.price is None:
        return None
    if estimate is None:
        return 0
    return cost(TokenUsage(estimate.input, estimate.output, cached), candidate.price)
