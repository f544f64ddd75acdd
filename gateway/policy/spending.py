"""What a call has used, also where its upstream did not say so."""

from gateway.call import Call, Tokens

NOTHING = Tokens()


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
