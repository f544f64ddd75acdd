"""`python -m benchmarks`: every contender under every load, in turns, on one core each."""

import argparse
import json
import os
import resource
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path

from benchmarks import measure, plot, report
from benchmarks.contender import Contender
from benchmarks.proxies import ALWAYS, CONTENDERS, IF_INSTALLED, RIVALS, YARDSTICKS
from benchmarks.rounds import Round
from benchmarks.scenarios import CAPACITY, Scenario, scenarios


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = list(CONTENDERS)
    parser.add_argument("--quick", action="store_true", help="one short round: for a first look, no claim")
    parser.add_argument("--only", default="", metavar="LOAD,...", help="loads by the start of their names")
    parser.add_argument("--rounds", type=int, help="default 3; with --quick 1")
    further = ", ".join(name for name in names if name not in ALWAYS)
    parser.add_argument("--rivals", default="", metavar="NAME,...", help=f"further: {further}; or all")
    parser.add_argument("--without", default="", metavar="NAME,...", help=f"leave out: {', '.join(names)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the raw samples")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/results.md, and draw them")
    given = parser.parse_args()
    given.rivals = installed() if given.rivals == "all" else split(given.rivals)
    given.without = split(given.without)
    for name in given.rivals + given.without:
        if name not in names:
            parser.error(f'no contender named "{name}"; there are: {", ".join(names)}')
    return given


def split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def installed() -> list[str]:
    """The installed competitors; prints a line on each of the others."""
    lacks = {name: CONTENDERS[name].missing() for name in RIVALS}
    for name, lack in lacks.items():
        if lack:
            print(f"{name} is left out, for it is not installed: {lack}", file=sys.stderr)
    return [name for name, lack in lacks.items() if not lack]


def contenders(rivals: list[str], without: list[str]) -> list[type[Contender]]:
    """The contenders to run. Raises RuntimeError if a requested one is not installed."""
    there = [name for name in IF_INSTALLED if not CONTENDERS[name].missing()]
    wanted = [name for name in CONTENDERS if name in {*ALWAYS, *there, *rivals} - set(without)]
    for name in wanted:
        if lack := CONTENDERS[name].missing():
            raise RuntimeError(f"{name} is not installed: {lack}")
    return [CONTENDERS[name] for name in wanted]


def chosen(quick: bool, only: list[str]) -> list[Scenario]:
    """The loads to run, and the one that sets the rate of the quiet load."""
    known = scenarios(quick)
    loads = [s for s in known if (s.name.startswith(tuple(only)) if only else not (quick and s.slow))]
    if not loads:
        raise RuntimeError(f"no such load; there are: {', '.join(s.name for s in known)}")
    quiet = any(s.share for s in loads)
    return [s for s in known if s in loads or (quiet and s.name == CAPACITY)]


def raise_descriptor_limit(loads: list[Scenario]) -> None:
    """Raise it for this process and its children. Raises RuntimeError if the hard limit is too low."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = 2 * max(s.connections for s in loads) + 2000  # a proxy has two for each call
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RuntimeError(f"these loads need {needed} file descriptors a process, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def about(kinds: list[type[Contender]], rounds: int, quick: bool) -> str:
    """Date, machine and versions."""
    text = f"{date.today()}, {measure.machine()}. {rounds} rounds{', quick' if quick else ''}."
    if versions := [f"{kind.name} {kind.version()}" for kind in kinds if kind.version()]:
        text += f" Rivals: {', '.join(versions)}."
    if len(os.sched_getaffinity(0)) == 1:
        text += " **One core only: all share it, so rates and latencies mean little.**"
    return text


def main() -> None:
    given = arguments()
    kinds, loads = contenders(given.rivals, given.without), chosen(given.quick, split(given.only))
    rounds = given.rounds or (1 if given.quick else 3)
    raise_descriptor_limit(loads)
    head = about(kinds, rounds, given.quick)
    free = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {free[-1]})
    start = time.monotonic()
    samples = [s for r in range(1, rounds + 1) for s in Round(r, free[-1], free[0]).run(kinds, loads)]
    print(f"took {time.monotonic() - start:.0f} s", file=sys.stderr)
    order = {(s.name, k.name): i for i, (s, k) in enumerate((s, k) for s in loads for k in kinds)}
    samples.sort(key=lambda s: (order[s.scenario, s.contender], s.round))
    names = [kind.name for kind in kinds]
    text = report.render(samples, head, [name for name in YARDSTICKS if name in names])
    print(text)
    if given.json:
        given.json.write_text(json.dumps({"about": head, "samples": [asdict(s) for s in samples]}, indent=1))
    if given.write:
        report.write(plot.PAGE, text)
        plot.write()
    if any(s.errors for s in samples):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, OSError) as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
