"""One scenario, one contender, one round: the raw figures and what is derived from them."""

from dataclasses import dataclass

from bench.load import Outcome
from bench.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Sample:
    """Raw figures; times in seconds, sizes in bytes."""

    scenario: str
    contender: str
    round: int
    seconds: float
    answers: int
    chunks: float  # 0 for plain answers
    reads: int  # the client's reads from its sockets
    p50: float
    p99: float
    cpu: float
    foreign: float  # time that others took from the contender's core
    memory: int
    memory_at_start: int
    connections: int
    right: int
    errors: dict[str, int]

    @property
    def rate(self) -> float:
        """Answers a second, or chunks a second of streams."""
        return (self.chunks or self.answers) / self.seconds

    @property
    def cpu_each(self) -> float:
        """CPU seconds per answer, or per chunk of streams."""
        return self.cpu / (self.chunks or self.answers or 1)

    @property
    def busy(self) -> float:
        """Share of its core that the contender used; well below 1 the rate was not its own limit."""
        return self.cpu / self.seconds

    @property
    def memory_each(self) -> float:
        """Bytes that each open connection has added to the freshly started process."""
        return (self.memory - self.memory_at_start) / self.connections


def sample(scenario: Scenario, contender: str, round_: int, size: int, idle: int, outcome: Outcome) -> Sample:
    """Take the figures out of a run; `size` is an answer's length, `idle` the memory before any load."""
    tally, before, after = outcome.tally, outcome.before, outcome.after
    latencies = sorted(tally.latencies) or [float("nan")]
    cpu = after.cpu - before.cpu
    return Sample(
        scenario=scenario.name,
        contender=contender,
        round=round_,
        seconds=outcome.seconds,
        answers=tally.answers,
        # By length: events are cut anywhere on the way, and whole streams are too coarse a count.
        chunks=tally.body_bytes / size * scenario.chunks,
        reads=tally.reads,
        p50=latencies[len(latencies) // 2],
        p99=latencies[len(latencies) * 99 // 100],
        cpu=cpu,
        foreign=max(0.0, after.core - before.core - cpu),
        memory=after.memory,
        memory_at_start=idle,
        connections=scenario.connections,
        right=outcome.right,
        errors=dict(outcome.errors),
    )
