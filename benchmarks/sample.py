"""One scenario, one contender, one round: the raw figures and those derived from them."""

from dataclasses import dataclass

from benchmarks.contender import Contender
from benchmarks.load import Outcome
from benchmarks.scenarios import Scenario


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
    size: int  # of the request's body
    lag_p99: float  # of the loop; 0 where it was not looked for
    direct_p50: float  # the same load without a proxy; 0 where it was not run
    direct_p99: float

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
        """Bytes per open connection, beyond the freshly started process."""
        return (self.memory - self.memory_at_start) / self.connections


def at(share: float, values: list[float]) -> float:
    """The quantile of these values; 0 without any."""
    return sorted(values)[int(len(values) * share)] if values else 0.0


def sample(
    scenario: Scenario,
    contender: Contender,
    round_: int,
    expected: int,
    outcome: Outcome,
    direct: Outcome | None = None,
) -> Sample:
    """The figures of a run; `expected` is the length of an answer, `direct` the run without a proxy."""
    tally, before, after = outcome.tally, outcome.before, outcome.after
    cpu = after.cpu - before.cpu
    unproxied = direct.tally.latencies if direct else []
    return Sample(
        scenario=scenario.name,
        contender=contender.name,
        round=round_,
        seconds=outcome.seconds,
        answers=tally.answers,
        # By length: events are cut anywhere on the way, and whole streams are too coarse a count.
        chunks=tally.body_bytes / expected * scenario.chunks,
        reads=tally.reads,
        p50=at(0.5, tally.latencies),
        p99=at(0.99, tally.latencies),
        cpu=cpu,
        foreign=max(0.0, after.core - before.core - cpu),
        memory=after.memory,
        memory_at_start=contender.memory_at_start,
        connections=scenario.connections,
        right=outcome.right,
        errors=dict(outcome.errors),
        size=len(scenario.body(contender.model)),
        lag_p99=at(0.99, outcome.lags),
        direct_p50=at(0.5, unproxied),
        direct_p99=at(0.99, unproxied),
    )
