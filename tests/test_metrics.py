"""The shortcuts through prometheus-client's histograms and counters."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.metrics import adder, observer


@given(st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.100001, 1.0, 2.5, 1e9]) | st.floats(0, 10), max_size=30))
def test_an_observer_exposes_what_the_library_would(values: list[float]) -> None:
    texts = []
    for short in (True, False):
        registry = CollectorRegistry()
        child = Histogram("h", "help", ["a"], buckets=(0.1, 1, 2.5), registry=registry).labels("x")
        observe = observer(child) if short else child.observe
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
        add = adder(child) if short else child.inc
        for amount in amounts:
            add(amount)
        texts.append(generate_latest(registry))
    assert texts[0] == texts[1]
