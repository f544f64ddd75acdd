"""What is measured: the loads, and the body that each of them posts."""

import json
from dataclasses import dataclass

PROMPT = "Explain in plain words how a sluice lets just as much water through as the mill can use. " * 6


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load. All times in seconds."""

    name: str
    connections: int
    window: float  # the measured time
    chunks: int = 0  # events of each stream; 0: a plain answer
    pace: float = 0.0  # between two chunks of a stream; 0: as fast as the upstream can write
    once: bool = False  # every connection asks once; else again as soon as it has its answer

    @property
    def ramp(self) -> float:
        """Over this time the connections start: paced streams spread out, so that the load is even."""
        return 1.0 if self.once else max(0.2, self.chunks * self.pace)

    @property
    def longest(self) -> float:
        """By then an answer that was under way when the window closed should have ended."""
        return self.chunks * self.pace + 10.0

    def body(self, model: str) -> bytes:
        """The request; a stream's plan stands in the prompt, the one thing every proxy carries unchanged."""
        text = PROMPT
        if self.chunks:
            text += f"chunks={self.chunks} pace={round(self.pace * 1000)}ms"
        call = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "stream": bool(self.chunks),
        }
        return json.dumps(call).encode()


def scenarios(quick: bool) -> list[Scenario]:
    """The loads in the order in which they run."""
    window = 1.0 if quick else 3.0
    chats = [Scenario(f"chat-{n}", n, window) for n in (1, 32, 128)]
    # Paced so that no contender worth comparing is saturated: a proxy that falls behind finds several
    # chunks in one read, and its price for a chunk looks lower than it is.
    paced = [
        Scenario("stream-100", 100, window, chunks=64, pace=0.010),
        Scenario("stream-400", 400, window, chunks=64, pace=0.025),
    ]
    flat = [Scenario(f"stream-{n}-flat", n, window, chunks=64) for n in (100, 400)]
    hold = Scenario("hold-1000", 1000, 1.0 if quick else 5.0, chunks=8 if quick else 16, pace=0.5, once=True)
    return [*chats, *paced, *flat, hold]
