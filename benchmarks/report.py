"""The tables: medians over the rounds, their range in brackets, ratios computed within each round."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.sample import Sample

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
Rows = dict[tuple[str, str], list[Sample]]  # (scenario, contender) -> its rounds
Column = tuple[str, int, Callable[[Sample], float]]  # title, digits, figure


def spread(values: list[float], digits: int) -> str:
    """The median, and the range if there is one."""
    low, middle, high = (f"{v:,.{digits}f}" for v in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low}..{high})"


def ratio(mine: list[Sample], base: list[Sample], value: Callable[[Sample], float]) -> str:
    """The ratio to the yardstick, round by round; a range that includes 1 is noise."""
    bases = {b.round: value(b) for b in base}
    ratios = [value(m) / bases[m.round] for m in mine if bases.get(m.round)]
    if mine is base or not ratios:
        return "1" if mine is base else "-"
    noise = ", noise" if len(ratios) > 1 and min(ratios) <= 1 <= max(ratios) else ""
    return spread(ratios, 2) + noise


def table(rows: Rows, columns: list[Column], against: Column, yardsticks: Sequence[str]) -> str:
    """One markdown table; its last columns compare one figure with each yardstick's."""
    titles = ["load", "contender", *(title for title, _, _ in columns)]
    titles += [f"{against[0]} to {name}" for name in yardsticks]
    lines = [" | ".join(titles), " | ".join("---" if i < 2 else "--:" for i in range(len(titles)))]
    for (scenario, contender), samples in rows.items():
        cells = [spread([value(s) for s in samples], digits) for _, digits, value in columns]
        cells += [ratio(samples, rows.get((scenario, name), []), against[2]) for name in yardsticks]
        lines.append(" | ".join([scenario, contender, *cells]))
    return "\n".join(f"| {line} |" for line in lines)


RATE: Column = ("req/s", 0, lambda s: s.rate)
P50: Column = ("p50 ms", 2, lambda s: s.p50 * 1e3)
P99: Column = ("p99 ms", 2, lambda s: s.p99 * 1e3)
FIRST: tuple[Column, Column] = (("first chunk p50 ms", *P50[1:]), ("first chunk p99 ms", *P99[1:]))
CPU: Column = ("CPU µs/chunk", 1, lambda s: s.cpu_each * 1e6)
BUSY: Column = ("core busy %", 0, lambda s: s.busy * 100)
MEMORY: Column = ("memory MB", 1, lambda s: s.memory / 1e6)
CHUNKS: Column = ("chunks/s", 0, lambda s: s.rate)
READS: Column = ("chunks/read", 2, lambda s: s.chunks / (s.reads or 1))
REQUEST: Column = ("CPU µs/request", *CPU[1:])
CPU_RATIO: Column = ("CPU", 2, lambda s: s.cpu_each)
RATE_RATIO: Column = ("rate", 2, lambda s: s.rate)

# How the loads' names match, the columns of their table, and the figure that is compared.
TABLES: list[tuple[str, list[Column], Column]] = [
    (
        r"chat-\d+",
        [RATE, P50, P99, REQUEST, BUSY, MEMORY],
        CPU_RATIO,
    ),
    (
        r"quiet",
        [
            RATE,
            P50,
            P99,
            ("added p50 ms", 2, lambda s: (s.p50 - s.direct_p50) * 1e3),
            ("added p99 ms", 2, lambda s: (s.p99 - s.direct_p99) * 1e3),
            REQUEST,
        ],
        ("added p50", 2, lambda s: s.p50 - s.direct_p50),
    ),
    (
        r"body-\w+",
        [
            RATE,
            ("MB/s", 0, lambda s: s.rate * s.size / 1e6),
            REQUEST,
            ("CPU ns/byte", 2, lambda s: s.cpu_each * 1e9 / s.size),
            BUSY,
            MEMORY,
        ],
        CPU_RATIO,
    ),
    (
        r"stream-\d+",
        [CHUNKS, *FIRST, CPU, ("CPU µs/stream", 0, lambda s: s.cpu_each * 64e6), READS, BUSY, MEMORY],
        CPU_RATIO,
    ),
    (r"stream-\d+-flat", [CHUNKS, ("streams/s", 0, lambda s: s.rate / 64), *FIRST, READS, BUSY], RATE_RATIO),
    (
        r"hold-\d+",
        [
            ("finished", 0, lambda s: s.right),
            CPU,
            BUSY,
            ("lag p99 ms", 1, lambda s: s.lag_p99 * 1e3),
            MEMORY,
            ("KB/stream", 1, lambda s: s.memory_each / 1e3),
        ],
        CPU_RATIO,
    ),
]


def render(samples: list[Sample], about: str, yardsticks: Sequence[str]) -> str:
    """All tables of a run in Markdown, with remarks."""
    parts = [about]
    for names, columns, against in TABLES:
        rows: Rows = {}
        for s in samples:
            if re.fullmatch(names, s.scenario):
                rows.setdefault((s.scenario, s.contender), []).append(s)
        if rows:
            parts.append(table(rows, columns, against, yardsticks))
    return "\n\n".join([*parts, remarks(samples)])


def remarks(samples: list[Sample]) -> str:
    """Errors, and the share of the contenders' core that other processes used."""
    lines = [
        f"- {s.scenario}, {s.contender}, round {s.round}: " + ", ".join(f"{n} {e}" for e, n in s.errors.items())
        for s in samples
        if s.errors
    ]
    lines = lines or [f"- Errors: none; all {sum(s.right for s in samples):,} answers were checked."]
    share = sorted(s.foreign / s.seconds * 100 for s in samples)
    lines.append(f"- Others took {median(share):.0f} % of the contenders' core (median; at most {share[-1]:.0f} %).")
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Replace the text between the page's markers. Raises ValueError if they are missing."""
    whole = page.read_text()
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the markers {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
