"""The loads, and the request body of each."""

import json
from dataclasses import dataclass, replace

PROMPT = "Explain in plain words how a sluice lets just as much water through as the mill can use. " * 6
NUMBER = b"000000000000"  # stands at a prompt's end, each call with its own there: no two are alike
SIZES = {"1k": 1 << 10, "64k": 64 << 10, "1m": 1 << 20, "8m": 8 << 20}  # bytes
CAPACITY = "chat-32"  # the load whose rate is a contender's capacity


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load. All times in seconds, sizes in bytes."""

    name: str
    connections: int
    window: float  # the measured time
    chunks: int = 0  # events of each stream; 0: a plain answer
    pace: float = 0.0  # between two chunks of a stream; 0: as fast as the upstream can write
    once: bool = False  # every connection asks once; else again as soon as it has its answer
    size: int = 0  # of the whole request body; 0: as short as the prompt makes it
    share: float = 0.0  # open loop at this share of the contender's own capacity; 0: closed loop
    pulse: float = 0.0  # time between two GETs beside the load, whose delay is the loop's lag; 0: none
    rounds: int = 99  # it is dear: no more rounds than that
    slow: bool = False  # a quick run leaves it out

    @property
    def ramp(self) -> float:
        """Seconds over which connections start: paced streams are spread out, so that the load is even."""
        return 2 * self.pace if self.once else max(0.2, self.chunks * self.pace)

    @property
    def longest(self) -> float:
        """Seconds within which an answer under way at the end of the window should end."""
        return self.chunks * self.pace + 20.0

    def body(self, model: str) -> bytes:
        """The request; a stream's plan is in the prompt, which every proxy forwards unchanged."""
        text = PROMPT
        if self.chunks:
            text += f"chunks={self.chunks} pace={round(self.pace * 1000)}ms"
        missing = max(0, self.size - len(self._call(model, text)))
        return self._call(model, text + (PROMPT * (missing // len(PROMPT) + 1))[:missing])

    def _call(self, model: str, text: str) -> bytes:
        call = {
            "model": model,
            "messages": [{"role": "user", "content": f"{text} {NUMBER.decode()}"}],
            "temperature": 0,
            "stream": bool(self.chunks),
        }
        return json.dumps(call).encode()


def scenarios(quick: bool) -> list[Scenario]:
    """The loads in their order."""
    chats = [Scenario(f"chat-{n}", n, 2.0) for n in (1, 32, 128, 1000)]
    quiet = Scenario("quiet", 32, 3.0, share=0.1)
    # Paced so that no contender worth comparing is saturated: a proxy that falls behind finds several
    # chunks in one read, and its price for a chunk looks lower than it is.
    paced = [
        Scenario("stream-100", 100, 2.0, chunks=64, pace=0.010),
        Scenario("stream-400", 400, 2.0, chunks=64, pace=0.025),
        Scenario("stream-2000", 2000, 2.0, chunks=64, pace=0.125, rounds=1, slow=True),
    ]
    flat = Scenario("stream-400-flat", 400, 2.0, chunks=64)
    bodies = [Scenario(f"body-{name}", 4, 1.0, size=size, rounds=2) for name, size in SIZES.items()]
    hold = Scenario("hold-5000", 5000, 8.0, chunks=8, pace=2.0, once=True, pulse=0.05, rounds=1, slow=True)
    loads = [*chats, quiet, *paced, flat, *bodies, hold]
    return [replace(load, window=1.0) for load in loads] if quick else loads
