"""`/v1/chat/completions`, and vLLM's list of conversations, which only the gateway itself calls."""

from typing import Final

from gateway.core.endpoint import Endpoint
from gateway.wire.openai.answer import read_answer
from gateway.wire.openai.chunks import ChunkReader
from gateway.wire.openai.errors import OpenAIErrors
from gateway.wire.openai.peek import read_head
from gateway.wire.openai.token_weight import chat_caps

BATCH_CHAT: Final = Endpoint(
    "/v1/chat/completions/batch",
    "batch_chat",
    errors=OpenAIErrors(),
    head=read_head,
    answer=read_answer,
    caps=chat_caps,
    internal=True,
)
"""Many conversations in one request."""

CHAT: Final = Endpoint(
    "/v1/chat/completions",
    "chat",
    errors=OpenAIErrors(),
    head=read_head,
    answer=read_answer,
    caps=chat_caps,
    reader=ChunkReader,
    conversation=True,
    asks_usage=True,
    payload="messages",
    merged=BATCH_CHAT,
    cacheable=True,
)
