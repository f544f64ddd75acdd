"""`python -m benchmarks.free_slot`: what batching adds to a call that finds a free slot, without sockets.

Calls for embeddings of one text, of a model that merges (`eager`) and of one that does not (`off`), in turns;
the median of the differences in the same turn.
"""

import statistics

import uvloop

from benchmarks.arguments import arguments
from benchmarks.call_path import Path
from benchmarks.limits import measure
from gateway.config.model import BatchingConfig


def main() -> None:
    """Print the figures."""
    paths = {
        policy: Path(stream=False, batching=BatchingConfig(policy=policy)) for policy in ("off", "eager")
    }
    taken = uvloop.run(measure(paths))
    added = [one - other for one, other in zip(taken["eager"], taken["off"], strict=True)]
    for policy, times in taken.items():
        print(f"{policy}: {statistics.median(times):.1f} µs a call")
    low, _, high = statistics.quantiles(added, n=4)
    print(f"batching adds {statistics.median(added):.1f} µs (quartiles {low:.1f} to {high:.1f})")


if __name__ == "__main__":
    arguments(__doc__)
    main()
