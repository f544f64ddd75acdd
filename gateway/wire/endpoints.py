"""The endpoints that requests may name, by path. Adding one is a file beside these, and a line here."""

from typing import Final

from gateway.core.endpoint import Endpoint
from gateway.wire.anthropic.messages import COUNT_TOKENS, MESSAGES
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.lists import (
    CLASSIFY,
    DETOKENIZE,
    MODERATIONS,
    POOLING,
    RERANK,
    RERANK_V2,
    SCORE,
    TOKENIZE,
)
from gateway.wire.openai.media import (
    IMAGE_EDITS,
    IMAGE_VARIATIONS,
    IMAGES,
    SPEECH,
    TRANSCRIPTIONS,
    TRANSLATIONS,
)
from gateway.wire.openai.models import HEALTH, MODELS
from gateway.wire.openai.responses import CANCEL, COMPACT, INPUT_ITEMS, INPUT_TOKENS, RESPONSES, STORED

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *(CHAT, COMPLETIONS, EMBEDDINGS),
    *(RESPONSES, COMPACT, INPUT_TOKENS, STORED, CANCEL, INPUT_ITEMS),
    *(MESSAGES, COUNT_TOKENS),
    *(RERANK, RERANK_V2, SCORE, POOLING, CLASSIFY, TOKENIZE, DETOKENIZE, MODERATIONS),
    *(IMAGES, IMAGE_EDITS, IMAGE_VARIATIONS),
    *(SPEECH, TRANSCRIPTIONS, TRANSLATIONS),
    *(MODELS, HEALTH),
)
