"""The endpoints that the gateway answers itself, and what stands in for a path that is none."""

from typing import Final

from gateway.core.endpoint import AnswerSummary, Endpoint, RequestHead
from gateway.core.errors import Rejection
from gateway.wire.openai.errors import OpenAIErrors


def _no_head(body: bytes, content_type: str) -> RequestHead | Rejection:
    return RequestHead("", stream=False, spans=())


def _no_answer(body: bytes) -> AnswerSummary | None:
    return None


def _ours(path: str, name: str, methods: tuple[str, ...] = ("GET", "HEAD")) -> Endpoint:
    return Endpoint(path, name, errors=OpenAIErrors(), head=_no_head, answer=_no_answer, methods=methods, ours=True)


MODELS: Final = _ours("/v1/models", "models")
HEALTH: Final = _ours("/health", "health")
FILES: Final = _ours("/v1/files", "files", ("GET", "POST"))
BATCHES: Final = _ours("/v1/batches", "batches", ("GET", "POST"))
UNKNOWN: Final = _ours("other", "other")
"""The endpoint, and the label, of a request whose path is unknown."""
