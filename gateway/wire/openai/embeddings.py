"""`/v1/embeddings`: one or many inputs, and no output tokens."""

from typing import Final

from gateway.core.endpoint import Endpoint
from gateway.wire.openai.answer import read_answer
from gateway.wire.openai.errors import OpenAIErrors
from gateway.wire.openai.peek import read_head

EMBEDDINGS: Final = Endpoint(
    "/v1/embeddings",
    "embeddings",
    errors=OpenAIErrors(),
    head=read_head,
    answer=read_answer,
    payload="input",
    cacheable=True,
)
