"""One round: all contenders are started, and each load runs against them one after the other."""

import sys
from dataclasses import dataclass, field

from benchmarks import load, measure, probe
from benchmarks.contender import Contender
from benchmarks.load import Outcome
from benchmarks.proxies import Upstream
from benchmarks.sample import Sample, sample
from benchmarks.scenarios import CAPACITY, Scenario


@dataclass(slots=True)
class Round:
    """One round: the contenders have one core, upstream and load generator the other."""

    number: int
    mine: int
    theirs: int
    samples: list[Sample] = field(default_factory=list)
    running: list[Contender] = field(default_factory=list)

    def run(self, kinds: list[type[Contender]], loads: list[Scenario]) -> list[Sample]:
        """Start, measure, stop. RuntimeError if a contender does not serve or answers wrongly."""
        upstream = Upstream(0)
        try:
            upstream.start(self.mine)
            for kind in kinds:
                self.running.append(kind(upstream.port))
                self.running[-1].start(self.theirs)
            for scenario in loads:
                if self.number <= scenario.rounds:
                    self._turns(scenario, upstream)
        finally:
            for contender in [*self.running, upstream]:
                contender.stop()
        return self.samples

    def _turns(self, scenario: Scenario, upstream: Upstream) -> None:
        for contender in self.running if self.number % 2 else reversed(self.running):
            if contender.loads and scenario.name not in contender.loads:
                continue
            where = f"round {self.number}: {scenario.name}, {contender.name}"
            print(where, end=" ... ", file=sys.stderr, flush=True)
            result = self._measure(scenario, contender, upstream)
            print(f"{result.rate:,.0f}/s, {result.cpu_each * 1e6:.1f} µs", file=sys.stderr, flush=True)
            self.samples.append(result)

    def _measure(self, scenario: Scenario, contender: Contender, upstream: Upstream) -> Sample:
        rate = scenario.share * self._capacity(contender)
        direct = self._load(scenario, upstream, self.mine, rate)[1] if rate else None
        expected, outcome = self._load(scenario, contender, self.theirs, rate)
        return sample(scenario, contender, self.number, expected, outcome, direct)

    def _capacity(self, contender: Contender) -> float:
        rates = (s.rate for s in self.samples if (s.scenario, s.contender) == (CAPACITY, contender.name))
        return next(rates, 0.0)

    @staticmethod
    def _load(scenario: Scenario, contender: Contender, core: int, rate: float) -> tuple[int, Outcome]:
        expected = probe.expected_size(scenario, contender)
        client = load.Load(scenario, contender, expected, rate)
        return expected, load.run(client, lambda: measure.read(contender.pid, core), contender.pulse())
