"""The requests that most tests send."""

from collections.abc import Iterable, Mapping
from typing import Any

from doubles.rawclient import Answer, call

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"

C0: dict[str, Any] = {"model": "m-small", "messages": [{"role": "user", "content": "ping"}]}
S0: dict[str, Any] = {**C0, "stream": True}
E0: dict[str, Any] = {"model": "m-embed", "input": "alpha"}


async def ask(
    port: int, body: bytes | Mapping[str, Any], headers: Iterable[tuple[str, str]] = (), path: str = CHAT
) -> Answer:
    """POST on a new connection; returns the whole answer."""
    return await call(port, "POST", path, body, headers)


def public(events: Iterable[bytes]) -> bytes:
    """These upstream events as a client must get them: only the model name differs."""
    return b"".join(events).replace(b'"model":"up-small"', b'"model":"m-small"')
