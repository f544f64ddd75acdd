"""The shortcuts through prometheus-client's histograms and counters."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.telemetry.fast_prometheus import fast_inc, fast_observe


@given(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.100001, 1.0, 2.5, 1e9]) | st.floats(0, 10), max_size=30))
def test_an_observer_exposes_what_the_library_would(values: list[float]) -> None:
    texts = []
    for short in (True, False):
        registry = CollectorRegistry()
        child = Histogram("h", "help", ["a"], buckets=(0.1, 1, 2.5), registry=registry).labels("x")
        observe = fast_observe(child) if short else child.observe
        for value in values:
            observe(value)
        texts.append(generate_latest(registry))
    assert texts[0] == texts[1]


@given(st.lists(st.integers(0, 1000), max_size=10))
def test_an_adder_exposes_what_the_library_would(amounts: list[int]) -> None:
    texts = []
    for short in (True, False):
        registry = CollectorRegistry()
        child = Counter("c", "help", ["a"], registry=registry).labels("x")
        add = fast_inc(child) if short else child.inc
        for amount in amounts:
            add(amount)
        texts.append(generate_latest(registry))
    assert texts[0] == texts[1]


def test_with_several_workers_it_is_written_where_the_library_looks(tmp_path: Path) -> None:
    script = """
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from gateway.telemetry.fast_prometheus import fast_inc, fast_observe
counter = Counter("c", "help", ["a"]).labels("x")
add, observe = fast_inc(counter), fast_observe(Histogram("h", "help", ["a"], buckets=(1, 2)).labels("x"))
for value in (0.5, 1.5, 1.5, 9):
    add(value)
    observe(value)
for label in range(1000):  # the file grows, and is mapped anew
    Counter(f"c{label}", "help", ["a"]).labels("x" * 100).inc()
add(3)
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    told = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    lines = told.stdout.decode().splitlines()
    buckets = [
        f'h_bucket{{a="x",le="{bound}"}} {count}' for bound, count in (("1.0", 1.0), ("2.0", 3.0), ("+Inf", 4.0))
    ]
    assert {'c_total{a="x"} 15.5', 'h_sum{a="x"} 12.5', 'h_count{a="x"} 4.0', *buckets} <= set(lines)
