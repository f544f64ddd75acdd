"""What a call has used, also where its upstream did not say so."""

from gateway.call import EMBEDDINGS, Call, Tokens
from gateway.policy.price import cost

NOTHING = Tokens()


def charge(call: Call, tokens: Tokens | None, body: bytes) -> None:
    """A whole answer is there: note what its upstream counted and that costs, else the output by its size."""
    call.tokens = tokens
    if tokens is None:
        call.generated = 0 if call.endpoint == EMBEDDINGS else len(body) // 4
    elif call.candidate is not None and call.candidate.price is not None:
        call.cost = cost(tokens, call.candidate.price)


def spent(call: Call) -> Tokens:
    """The upstream's own count, or the input and what has passed of the output, or nothing.

    Nothing is spent by a call that no upstream has answered, unless its client left while one was at work.
    """
    if call.tokens is not None:
        return call.tokens
    began = call.first_token_at or call.outcome == "ok"
    left = call.outcome == "client_gone" and call.sent_at
    if call.estimate is None or not (began or left):
        return NOTHING
    return Tokens(call.estimate.input, call.generated)
