"""`/v1/completions`: one or many prompts."""

from typing import Final

from gateway.core.endpoint import Endpoint
from gateway.wire.openai.answer import read_answer
from gateway.wire.openai.chunks import ChunkReader
from gateway.wire.openai.errors import OpenAIErrors
from gateway.wire.openai.peek import read_head
from gateway.wire.openai.token_weight import completion_caps

COMPLETIONS: Final = Endpoint(
    "/v1/completions",
    "completions",
    errors=OpenAIErrors(),
    head=read_head,
    answer=read_answer,
    caps=completion_caps,
    reader=ChunkReader,
    asks_usage=True,
    payload="prompt",
    cacheable=True,
)
