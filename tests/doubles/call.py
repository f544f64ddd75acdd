"""One request that reached the fault upstream."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Call:
    """One request as it arrived, and how it ended."""

    number: int
    connection: int
    nth_on_connection: int
    head: bytes
    body: bytes = b""
    body_read: bool = False
    sent: int = 0
    finished: bool = False
    closed: str | None = None
    closed_at: float | None = None
    method: str = field(init=False)
    target: str = field(init=False)
    headers: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        line, *rest = self.head.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.method, self.target, _ = line.split(" ")
        self.headers = [(name.lower(), value.strip()) for name, _, value in (one.partition(":") for one in rest)]

    def header(self, name: str) -> list[str]:
        """Every value of this header, in order."""
        return [value for key, value in self.headers if key == name.lower()]

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)
