"""Summarises answers that no upstream charges for: counts of tokens, and what is kept of an answer."""

from gateway.core.endpoint import AnswerSummary
from gateway.core.tokens import TokenUsage
from gateway.wire.openai import peek


def read_free(body: bytes) -> AnswerSummary | None:
    """What is known of an answer, whose usage is nothing whatever it reports."""
    answer = peek.peek_answer(body)
    if answer is None:
        return None
    model = answer.model if isinstance(answer.model, str) else None
    return AnswerSummary(model, "", TokenUsage(), peek.is_error(answer), damaged=not peek.is_utf8(body))
