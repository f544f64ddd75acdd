"""Take keys and addresses out of an upstream's words before a client reads them."""

import re
from collections.abc import Iterable

from gateway.units import MASK

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>)\]}]+", re.IGNORECASE)
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b")
_KEY = re.compile(r"\b(?:sk|pk|rk|key|gsk|xai|ak)-[A-Za-z0-9_*.-]{6,}|\bAIza[A-Za-z0-9_-]{20,}", re.ASCII)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/])/(?:home|root|usr|opt|var|etc|srv|tmp|app|mnt|data|workspace)/[^\s\"'<>:,)]+")

LONGEST = 4000
"""Characters of an upstream's message that are kept."""


class Masker:
    """Knows one upstream's own secrets and host names, and the usual looks of everybody's."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """`secrets` are exact texts: the upstream's key, its host, credentials among its headers."""
        # Longest first, so that a secret that contains another one leaves no rest.
        self._secrets = sorted({text for text in secrets if len(text) >= 4}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """`text` with secrets, URLs, IP addresses, server paths and what looks like a key as `***`."""
        text = text[:LONGEST]
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        text = _URL.sub(MASK, text)
        text = _ADDRESS.sub(MASK, text)
        text = _BEARER.sub(rf"\1 {MASK}", text)
        text = _KEY.sub(MASK, text)
        return _PATH.sub(MASK, text)
