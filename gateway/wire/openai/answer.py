"""Summarises a whole answer of chat, completions or embeddings."""

from typing import Final

from gateway.core.endpoint import AnswerSummary
from gateway.wire.openai import peek, usage

_SEARCHED: Final = 256 * 1024
"""Bytes of an answer without `usage` up to which its usage is searched for elsewhere."""


def read_answer(body: bytes) -> AnswerSummary | None:
    """What is known of an answer; None if it is not a JSON object."""
    answer = peek.peek_answer(body)
    if answer is None:
        return None
    block, error = answer.usage, peek.is_error(answer)
    tokens = None if block is peek.NULL else usage.tokens(block)
    if tokens is None and not error and len(body) < _SEARCHED:
        tokens = usage.elsewhere(body)
    model = answer.model if isinstance(answer.model, str) else None
    failed, damaged = peek.failed_choice(answer), not peek.is_utf8(body)
    return AnswerSummary(model, peek.finish_of(answer), tokens, error, failed, damaged)
