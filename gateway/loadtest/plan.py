"""What a load is: how many calls, of which kind, and how they follow one another."""

from dataclasses import dataclass
from typing import Literal

from gateway.units import Secret

Endpoint = Literal["chat", "completions", "embeddings"]

PATHS: dict[str, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "embeddings": "/embeddings",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where calls go: a base URL, up to the part that endpoints share, the model's name there, the key."""

    url: str
    model: str
    key: Secret | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One load, on each of the targets.

    Either `rate` (calls a second, whose arrivals wait for nobody) or `concurrency` (calls at once, each
    followed by the next) says how they follow; `requests` or `duration` (seconds) how many, for each target.
    """

    targets: tuple[Target, ...]
    endpoint: Endpoint
    stream: bool
    concurrency: int
    rate: float | None
    requests: int | None
    duration: float | None
    prompt_tokens: tuple[int, int]
    max_tokens: int
    timeout: float
    seed: int
