"""What real clients send, as recorded once; see `tests/fixtures/SOURCES.md`."""

import json
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parents[1] / "fixtures/clients"
CLIENTS = sorted(file.stem for file in _FOLDER.glob("*.json"))


class Recorded(NamedTuple):
    """One request; `json` is its body where that is JSON. The key in its headers is `KEY`."""

    client: str
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    json: Any


def recorded(client: str) -> list[Recorded]:
    """The requests of one client, in order."""
    requests = json.loads((_FOLDER / f"{client}.json").read_text(encoding="utf-8"))
    return [
        Recorded(
            client,
            one["method"],
            one["target"],
            [(name, value) for name, value in one["headers"]],
            json.dumps(one["json"]).encode() if "json" in one else one.get("form", "").encode("latin-1"),
            one.get("json"),
        )
        for one in requests
    ]


def everything() -> list[Recorded]:
    """The requests of all clients."""
    return [request for client in CLIENTS for request in recorded(client)]
