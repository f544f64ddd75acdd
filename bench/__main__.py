"""`python -m bench`: every contender under every load, in turns, on one core each."""

import argparse
import json
import os
import resource
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

from bench import load, measure, probe, report
from bench.proxies import CONTENDERS, ROOT, Contender, Upstream
from bench.sample import Sample, sample
from bench.scenarios import Scenario, scenarios

ALWAYS = 2  # so many contenders run unasked


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = list(CONTENDERS)
    parser.add_argument("--quick", action="store_true", help="one short round, under a minute")
    parser.add_argument("--only", default="", metavar="LOAD,...", help="loads by the start of their names")
    parser.add_argument("--rounds", type=int, help="default 3; with --quick 1")
    parser.add_argument(
        "--rivals", default="", metavar="NAME,...", help=f"further: {', '.join(names[ALWAYS:])}"
    )
    parser.add_argument(
        "--without", default="", metavar="NAME,...", help=f"leave out: {', '.join(names[1:])}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the raw samples")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    given = parser.parse_args()
    for name in split(given.rivals) + split(given.without):
        if name not in names:
            parser.error(f'no contender named "{name}"; there are: {", ".join(names)}')
    return given


def split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def one(scenario: Scenario, contender: Contender, round_: int, core: int) -> Sample:
    """Run one load against one contender."""
    known = (scenario, contender.model, contender.key, contender.port)
    size = probe.expected_size(*known)
    client = load.Load(scenario, contender.port, probe.head(*known), size)
    outcome = load.run(client, lambda: measure.read(contender.pid, core))
    return sample(scenario, contender.name, round_, size, contender.memory_at_start, outcome)


def one_round(
    kinds: list[type[Contender]], loads: list[Scenario], round_: int, cores: tuple[int, int]
) -> list[Sample]:
    """Start all contenders anew, run each load against one after the other, end them."""
    mine, theirs = cores
    running: list[Contender] = []
    samples: list[Sample] = []
    upstream = Upstream(0)
    try:
        upstream.start(mine)
        for kind in kinds:
            running.append(kind(upstream.port))
            running[-1].start(theirs)
        for scenario in loads:
            for contender in running if round_ % 2 else reversed(running):
                print(
                    f"round {round_}: {scenario.name}, {contender.name} ...",
                    end=" ",
                    file=sys.stderr,
                    flush=True,
                )
                result = one(scenario, contender, round_, theirs)
                print(f"{result.rate:,.0f}/s, {result.cpu_each * 1e6:.1f} µs", file=sys.stderr, flush=True)
                samples.append(result)
    finally:
        for contender in [*running, upstream]:
            contender.stop()
    return samples


def main() -> None:
    given = arguments()
    names = [*list(CONTENDERS)[:ALWAYS], *split(given.rivals)]
    kinds = [CONTENDERS[name] for name in dict.fromkeys(names) if name not in split(given.without)]
    loads = [s for s in scenarios(given.quick) if s.name.startswith(tuple(split(given.only) or [""]))]
    rounds = given.rounds or (1 if given.quick else 3)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # children inherit it
    free = sorted(os.sched_getaffinity(0))
    about = f"{date.today()}, {measure.machine()}. {rounds} rounds{', quick' if given.quick else ''}."
    if len(free) == 1:
        about += (
            " **One core only: contender, client and upstream share it, so rates and latencies mean little.**"
        )
    os.sched_setaffinity(0, {free[-1]})
    start = time.monotonic()
    samples = [s for r in range(1, rounds + 1) for s in one_round(kinds, loads, r, (free[-1], free[0]))]
    print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr)
    order = {(s.name, k.name): i for i, (s, k) in enumerate((s, k) for s in loads for k in kinds)}
    samples.sort(key=lambda s: (order[s.scenario, s.contender], s.round))
    text = report.render(samples, about)
    print(text)
    if given.json:
        given.json.write_text(json.dumps({"about": about, "samples": [asdict(s) for s in samples]}, indent=1))
    if given.write:
        report.write(ROOT / "docs" / "benchmarks.md", text)
    if any(s.errors for s in samples):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
