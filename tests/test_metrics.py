"""The shortcut through prometheus-client's histogram."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from gateway.metrics import observer


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
