"""The endpoints that requests may name, by path. Adding one is a file beside these, and a line here."""

from typing import Final

from gateway.core.endpoint import Endpoint
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.models import HEALTH, MODELS

ENDPOINTS: Final[tuple[Endpoint, ...]] = (CHAT, COMPLETIONS, EMBEDDINGS, MODELS, HEALTH)
