"""`python -m benchmarks.free_slot`: the cost of batching for a call that finds a free slot, without sockets.

Embedding calls of one text, for a model that merges (`eager`) and one that does not (`off`), in turns; printed is
the median of the differences within a turn.
"""

import statistics

import uvloop

from benchmarks.arguments import arguments
from benchmarks.call_path import Path
from benchmarks.limits import measure
from gateway.config.model import BatchingConfig


def main() -> None:
    """Print the figures."""
    paths = {policy: Path(stream=False, batching=BatchingConfig(policy=policy)) for policy in ("off", "eager")}
    durations = uvloop.run(measure(paths))
    added = [one - other for one, other in zip(durations["eager"], durations["off"], strict=True)]
    for policy, times in durations.items():
        print(f"{policy}: {statistics.median(times):.1f} µs a call")
    low, _, high = statistics.quantiles(added, n=4)
    print(f"batching adds {statistics.median(added):.1f} µs (quartiles {low:.1f} to {high:.1f})")


if __name__ == "__main__":
    arguments(__doc__)
    main()
