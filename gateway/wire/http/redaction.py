"""Take keys and addresses out of an upstream's words before a client reads them."""

import re
from collections.abc import Iterable

from gateway.core.units import MASK

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>)\]}]+", re.IGNORECASE)
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"  # IPv4
    r"|(?<![\w:])(?:(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}|[0-9a-f:]*::[0-9a-f:]*)(?![\w:])",  # IPv6
    re.IGNORECASE,
)
_HOST = re.compile(
    r"\b[a-z0-9](?:[\w-]*\.)+[\w-]+:\d{2,5}\b|\b[\w-]+(?:\.[\w-]+)*\.(?:internal|local|lan|svc|intranet)\b",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"\b(password|passwd|pwd|secret|token|api[_-]?key|key)=[^\s&\"',;]{6,}", re.IGNORECASE)
_KEY = re.compile(
    r"\b(?:sk|pk|rk|key|gsk|xai|ak)-[A-Za-z0-9_*.-]{6,}"  # OpenAI and those who name keys like it
    r"|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{6,}|\bhf_[A-Za-z0-9]{6,}|\bAKIA[A-Z0-9]{12,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}|\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){1,2}",
    re.ASCII,
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_PATH = re.compile(
    r"(?<![\w/])/(?:home|root|usr|opt|var|etc|srv|tmp|app|mnt|data|models|workspace)/[^\s\"'<>:,)]+"
)

LONGEST = 4000
"""Characters of an upstream's message that are kept."""


class Redactor:
    """Knows one upstream's own secrets and host names, and the usual looks of everybody's."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """`secrets` are exact texts: the upstream's key, its host, credentials among its headers."""
        # Longest first, so that a secret that contains another one leaves no rest.
        known = sorted({text for text in secrets if len(text) >= 4}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, known)) or r"(?!)", re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """`text` with secrets, URLs, IP addresses, server paths and what looks like a key as `***`."""
        if len(text) > 4 * LONGEST:  # between two words, so that no secret is cut in two
            text = text[: 4 * LONGEST].rpartition(" ")[0]
        text = self._secrets.sub(MASK, text)
        text = _URL.sub(MASK, text)
        text = _ADDRESS.sub(MASK, text)
        text = _HOST.sub(MASK, text)
        text = _ASSIGNED.sub(rf"\1={MASK}", text)
        text = _BEARER.sub(rf"\1 {MASK}", text)
        text = _KEY.sub(MASK, text)
        return _PATH.sub(MASK, text)[:LONGEST]
