"""Removes keys, addresses and paths from an upstream's messages before a client reads them."""

import re
from collections.abc import Iterable, Mapping

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
    r"\b(?:sk|pk|rk|key|gsk|xai|ak)-[A-Za-z0-9_*.-]{6,}"  # OpenAI and providers with similar keys
    r"|\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{6,}|\bhf_[A-Za-z0-9]{6,}|\bAKIA[A-Z0-9]{12,}"
    r"|\bAIza[A-Za-z0-9_-]{20,}|\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){1,2}",
    re.ASCII,
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/])/(?:home|root|usr|opt|var|etc|srv|tmp|app|mnt|data|models|workspace)/[^\s\"'<>:,)]+")

LONGEST = 4000
"""Characters of an upstream's message that reach the client."""

_DEEPEST = 8
_MOST_MEMBERS = 256
_SECRET_MEMBER = re.compile(
    r"authorization|cookie|password|secret|api[_-]?key|^(?:access[_-]?)?token$|credential|^user_id$|organization",
    re.IGNORECASE,
)


class Redactor:
    """Masks one upstream's secrets and host names, and anything that looks like a secret or an address."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """`secrets` are exact texts: the upstream's key, its host, credentials in its headers."""
        # Longest first: a secret that contains a shorter one must be masked whole.
        texts = sorted({text for text in secrets if len(text) >= 4}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, texts)) or r"(?!)", re.IGNORECASE)

    def __call__(self, text: str) -> str:
        """`text` with secrets, URLs, IP addresses, server paths and anything like a key replaced by `***`."""
        if len(text) > 4 * LONGEST:  # cut between two words, so that no secret is split
            text = text[: 4 * LONGEST].rpartition(" ")[0]
        text = self._secrets.sub(MASK, text)
        text = _URL.sub(MASK, text)
        text = _ADDRESS.sub(MASK, text)
        text = _HOST.sub(MASK, text)
        text = _ASSIGNED.sub(rf"\1={MASK}", text)
        text = _BEARER.sub(rf"\1 {MASK}", text)
        text = _KEY.sub(MASK, text)
        return _PATH.sub(MASK, text)[:LONGEST]

    def members(self, members: Mapping[str, object]) -> dict[str, object]:
        """The members of an upstream's JSON object, each text in them masked; too deep or too many are left out."""
        left = [_MOST_MEMBERS]
        return {
            self(name): value
            for name, member in members.items()
            if (value := self._member(name, member, 0, left)) is not None
        }

    def _member(self, name: str, value: object, depth: int, left: list[int]) -> object:
        left[0] -= 1
        if left[0] < 0 or depth > _DEEPEST:
            return None
        if isinstance(value, dict):
            inner = ((str(key), self._member(str(key), one, depth + 1, left)) for key, one in value.items())
            return {self(key): one for key, one in inner if one is not None}
        if isinstance(value, list):
            items = (self._member(name, one, depth + 1, left) for one in value)
            return [one for one in items if one is not None]
        if isinstance(value, str):
            return MASK if _SECRET_MEMBER.search(name) else self(value)
        return value


def mask_keys(text: str) -> str:
    """`text` with everything that looks like a key or a password replaced by `***`; addresses and paths stay."""
    return _KEY.sub(MASK, _BEARER.sub(rf"\1 {MASK}", _ASSIGNED.sub(rf"\1={MASK}", text)))
