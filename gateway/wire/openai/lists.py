"""The endpoints that judge or count texts: rerank, score, pooling, classify, tokenize, detokenize, moderations."""

from collections.abc import Callable
from typing import Final

from gateway.core.endpoint import AnswerSummary, Endpoint
from gateway.wire.openai.answer import read_answer
from gateway.wire.openai.errors import OpenAIErrors
from gateway.wire.openai.free import read_free
from gateway.wire.openai.peek import read_head


def _made(
    path: str, name: str, answer: Callable[[bytes], AnswerSummary | None] = read_answer, *, at_root: bool = False
) -> Endpoint:
    return Endpoint(path, name, errors=OpenAIErrors(), head=read_head, answer=answer, at_root=at_root)


RERANK: Final = _made("/v1/rerank", "rerank")
RERANK_V2: Final = _made("/v2/rerank", "rerank", at_root=True)
SCORE: Final = _made("/v1/score", "score")
POOLING: Final = _made("/v1/pooling", "pooling", at_root=True)
CLASSIFY: Final = _made("/v1/classify", "classify", at_root=True)
TOKENIZE: Final = _made("/v1/tokenize", "tokenize", read_free, at_root=True)
DETOKENIZE: Final = _made("/v1/detokenize", "detokenize", read_free, at_root=True)
MODERATIONS: Final = _made("/v1/moderations", "moderations", read_free)
"""Free of charge at OpenAI."""
