"""Scrapes, their growth over restarts, and quantiles out of buckets: plain numbers."""

import math
import re
from pathlib import Path

import pytest

from gateway.cli.top import view_model
from gateway.cli.top.samples import EMPTY, SampleWindow, grown, quantile, scraped

INF = math.inf

TEXT = """\
# TYPE sluice_requests counter
sluice_requests_total{model="a",outcome="ok"} 7.0
sluice_requests_total{model="b",outcome="ok"} 2.0
sluice_requests_total{model="b",outcome="shed"} 1.0
# TYPE sluice_upstream_inflight gauge
sluice_upstream_inflight{upstream="local"} 3.0
# TYPE sluice_batch_size histogram
sluice_batch_size_bucket{le="1.0",model="a"} 2.0
sluice_batch_size_bucket{le="2.0",model="a"} 4.0
sluice_batch_size_bucket{le="+Inf",model="a"} 4.0
sluice_batch_size_count{model="a"} 4.0
sluice_batch_size_sum{model="a"} 6.0
"""


def counters(**counts: float) -> str:
    lines = "".join(f'c_total{{of="{name}"}} {value}\n' for name, value in counts.items())
    return f"# TYPE c counter\n{lines}# TYPE g gauge\ng 5\n"


def test_sums_by_labels() -> None:
    series = scraped(TEXT)
    assert series.total("sluice_requests_total") == 10
    assert series.total("sluice_requests_total", model="b") == 3
    assert series.total("nothing") == 0
    assert series.by("outcome", "sluice_requests_total", model="b") == {"ok": 2, "shed": 1}
    assert series.mean("sluice_batch_size", model="a") == 1.5
    assert series.mean("sluice_batch_size", model="b") is None
    assert series.quantile(0.5, "sluice_batch_size", model="a") == 1.0
    assert (series.has("sluice_upstream_inflight"), series.has("sluice_redis_up")) == (True, False)


def test_anything_but_prometheus_text_is_an_error() -> None:
    with pytest.raises(ValueError):
        scraped("<html>")


@pytest.mark.parametrize(
    ("share", "buckets", "expected"),
    [
        (0.5, [], None),
        (0.5, [(1, 0), (INF, 0)], None),
        (0.5, [(1, 10), (INF, 10)], 0.5),
        (0.99, [(1, 10), (INF, 10)], 0.99),
        (0.5, [(1, 0), (2, 10), (INF, 10)], 1.5),
        (0.5, [(1, 5), (2, 10), (INF, 10)], 1.0),
        (0.99, [(1, 5), (2, 5), (INF, 10)], 2),  # no more is known than that it lies above
        (0.5, [(INF, 4)], 0.0),
    ],
)
def test_quantiles_out_of_buckets(share: float, buckets: list[tuple[float, float]], expected: float | None) -> None:
    assert quantile(share, buckets) == (expected if expected is None else pytest.approx(expected))


def test_growth_is_of_counters_only_and_new_series_began_at_0() -> None:
    growth = grown(scraped(counters(a=5)), scraped(counters(a=8, b=2)))
    assert growth.by("of", "c_total") == {"a": 3, "b": 2}
    assert not growth.has("g")


def test_a_counter_that_fell_means_that_all_began_anew() -> None:
    # `a` has already grown past what it was: alone it would look like a growth by 1.
    growth = grown(scraped(counters(a=5, b=50)), scraped(counters(a=6, b=2)))
    assert growth.by("of", "c_total") == {"a": 6, "b": 2}


def test_a_window_adds_up_its_steps_and_forgets_old_ones() -> None:
    window = SampleWindow(10)
    assert (window.seconds, window.growth().values) == (0, {})
    for now, count in [(100, 0), (105, 10), (110, 30), (115, 31)]:
        window.add(now, scraped(counters(a=count)))
    assert (window.seconds, window.growth().total("c_total")) == (10, 21)
    window.add(120, scraped(counters(a=4)))  # started anew: 4 of the new one, 1 of the old one
    assert (window.seconds, window.growth().total("c_total")) == (10, 5)


def test_a_step_longer_than_the_window_is_kept_whole() -> None:
    window = SampleWindow(1)
    window.add(0, EMPTY)
    window.add(60, scraped(counters(a=60)))
    assert (window.seconds, window.growth().total("c_total")) == (60, 60)


def test_every_metric_that_the_screen_names_is_asked_for() -> None:
    source = Path(view_model.__file__).read_text(encoding="utf-8")
    named = {name.removesuffix("_count") for name in re.findall(r'"(sluice_\w+)"', source)}
    assert named == set(view_model.METRICS)
