"""The rows of the screen, made from plain samples, and how they are drawn at every width."""

import io

import pytest
from rich.console import Console

from gateway.cli.top.samples import EMPTY, Series, scraped
from gateway.cli.top.screen import screen
from gateway.cli.top.view_model import AdminAnswers, Screen, UpstreamView, UsedRow, view_model


def series(**values: float) -> Series:
    """`name__label_value__label_value` is a name with labels."""
    found = {}
    for words, value in values.items():
        name, *labels = words.split("__")
        pairs = (label.partition("_is_") for label in labels)
        found[name, frozenset((label, text) for label, _, text in pairs)] = value
    return Series(found)


NOW = series(
    sluice_build_info__version_is_9=1,
    sluice_config_generation=3,
    sluice_config_reload_success=0,
    sluice_redis_up=0,
    sluice_requests_total__model_is_small__outcome_is_ok=100,
    sluice_requests_total__model_is_large__outcome_is_ok=10,
    sluice_requests_total__model_is_large__outcome_is_shed=4,
    sluice_requests_total__model_is_large__outcome_is_limited=0,
    sluice_batch_size_count__model_is_small=50,
    sluice_limit_rejections_total__key_is_team__limit_is_rpm=4,
    sluice_cache_requests_total__result_is_hit=3,
    sluice_cache_requests_total__result_is_miss=1,
    sluice_cache_saved_usd_total__model_is_small=0.5,
)
GROWTH = series(
    sluice_requests_total__model_is_small__outcome_is_ok=20,
    sluice_requests_total__model_is_large__outcome_is_shed=4,
    sluice_tokens_total__model_is_small__type_is_input=400,
    sluice_upstream_attempts_total__upstream_is_local__result_is_success=18,
    sluice_upstream_attempts_total__upstream_is_local__result_is_ignore=1,
    sluice_upstream_attempts_total__upstream_is_local__result_is_retryable=2,
    sluice_retries_total__upstream_is_local=2,
    sluice_batch_size_count__model_is_small=10,
    sluice_batch_size_sum__model_is_small=40,
    sluice_batch_wait_seconds_count__model_is_small__flush_reason_is_idle=30,
    sluice_batch_wait_seconds_count__model_is_small__flush_reason_is_slot=10,
    sluice_cache_requests_total__result_is_hit=3,
    sluice_cache_requests_total__result_is_miss=1,
    sluice_cache_requests_total__result_is_bypass=9,
)
USAGE = [
    UsedRow("2026-11-18", "team", "small", 99, 9, 9, "9"),
    UsedRow("2026-11-19", "team", "small", 2, 30, 3, "0.000012"),
    UsedRow("2026-11-19", "team", "small", 1, 10, 1, "0.000001"),
    UsedRow("2026-11-19", "other", "large", 5, 50, 5, "0.25"),
]
ANSWERS = AdminAnswers(NOW, "ready", {"local": UpstreamView("up", 3, 2, "half-open")}, USAGE, "")


@pytest.fixture
def shown() -> Screen:
    return view_model(ANSWERS, GROWTH, 4.0, GROWTH)


def test_the_last_error_of_an_upstream_is_shown_with_its_time() -> None:
    error = {"at": "2026-11-19T10:11:12+00:00", "message": "it does not speak TLS"}
    views = {"local": UpstreamView("failing", 0, 0, "closed", error), "other": UpstreamView("up", 0, 0, "closed")}
    picture = view_model(AdminAnswers(NOW, "ready", views, USAGE, ""), GROWTH, 4.0, GROWTH)
    out = io.StringIO()
    Console(file=out, width=80).print(screen(picture, "here", "now", 80))
    assert "local     10:11:12  it does not speak TLS" in out.getvalue()
    assert "failing" in out.getvalue()


def test_batch_jobs_are_shown_while_there_are_any(shown: Screen) -> None:
    assert shown.batch_jobs is None
    counts = {"waiting": 40.0, "under_way": 8.0, "completed": 150_000.0, "failed": 2.0}
    lines = "".join(f'sluice_batch_job_lines{{state="{state}"}} {count}\n' for state, count in counts.items())
    series = scraped(f"{lines}sluice_batch_job_age_seconds 600\n")
    picture = view_model(AdminAnswers(series, "ready", {}, [], ""), EMPTY, 0.0, EMPTY)
    out = io.StringIO()
    Console(file=out, width=120).print(screen(picture, "here", "now", 120))
    told = "batch jobs: 40 lines waiting, 8 under way, 150k done, 2 failed; the oldest began 10 min ago"
    assert told in out.getvalue()


def test_the_head(shown: Screen) -> None:
    assert (shown.version, shown.ready, shown.generation) == ("9", "ready", 3)
    assert (shown.reload_refused, shown.redis_up) == (True, False)
    without = view_model(AdminAnswers(EMPTY, "draining", {}, [], "off"), EMPTY, 0.0, EMPTY)
    assert (without.version, without.reload_refused, without.redis_up) == ("?", False, None)


def test_outcomes_the_busiest_first_and_none_that_never_was(shown: Screen) -> None:
    assert shown.outcomes == [(("ok",), 5.0, 110), (("shed",), 1.0, 4)]


def test_models(shown: Screen) -> None:
    small, large = shown.models
    assert (small.name, small.rate, small.input_rate, small.output_rate) == ("small", 5.0, 100.0, 0.0)
    assert (small.first_token, small.duration) == ((None, None), (None, None))
    assert (large.name, large.rate) == ("large", 1.0)


def test_upstreams(shown: Screen) -> None:
    (local,) = shown.upstreams
    assert local[:5] == ("local", "up", "half-open", 3, 2)
    assert (local.rate, local.failed, local.retries) == (5.25, 0.5, 0.5)


def test_batches(shown: Screen) -> None:
    (small,) = shown.batches
    assert small == ("small", 2.5, 4.0, {"idle": 0.75, "slot": 0.25})


def test_limits_and_cache(shown: Screen) -> None:
    assert shown.limits == [(("team", "rpm"), 0.0, 4)]
    assert shown.cache == [(("hit",), 0.75, 3), (("miss",), 0.25, 1)]
    assert (shown.hit_rate, shown.saved_usd) == (0.75, 0.5)
    assert (shown.fallbacks, shown.redis_errors, shown.routed) == ([], [], [])


def test_spend_of_the_newest_day_the_dearest_first(shown: Screen) -> None:
    assert shown.spend == [("other", "large", 5, 50, 5, 250_000_000), ("team", "small", 3, 40, 4, 13_000)]


def test_without_a_span_of_time_there_are_no_rates() -> None:
    first = view_model(ANSWERS, EMPTY, 0.0, NOW)
    assert {row.rate for row in (*first.outcomes, *first.models, *first.upstreams)} == {0.0}


def drawn(shown: Screen, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(screen(shown, "http://127.0.0.1:9464", "the last 4 s", width))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def words(lines: list[str], first: str) -> list[str]:
    """The words of the line that begins with this one."""
    (line,) = (line for line in lines if line.split()[:1] == [first])
    return line.split()


def test_the_plain_screen(shown: Screen) -> None:
    lines = drawn(shown, 120)
    head = "Sluice 9  http://127.0.0.1:9464  ready  config 3 (the last reload was refused)  redis away"
    assert lines[0].rstrip() == head
    assert words(lines, "shed") == ["shed", "1.00", "4"]
    assert words(lines, "local") == ["local", "up", "half-open", "3", "2", "5.25", "0.50", "0.50", "-", "-"]
    assert words(lines, "hit") == ["hit", "0.75", "3"]
    assert words(lines, "cache,") == ["cache,", "75%", "hits,", "0.5", "USD", "saved"]
    assert words(lines, "all") == ["all", "8", "90", "9", "0.250013"]
    assert any("idle 75%, slot 25%" in line for line in lines)


@pytest.mark.parametrize("width", [20, 50, 66, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(shown: Screen, width: int) -> None:
    assert max(map(len, drawn(shown, width))) <= width


def test_narrow_screens_leave_out_columns_and_cut_no_figure(shown: Screen) -> None:
    assert words(drawn(shown, 70), "local") == ["local", "up", "half-open", "3", "2", "5.25", "0.50"]
    assert words(drawn(shown, 66), "local") == ["local", "up", "half-open", "3", "2", "5.25", "0.50"]
    assert words(drawn(shown, 60), "local") == ["local", "up", "half-open", "3", "2", "0.50"]


def test_wide_screens_have_two_sides(shown: Screen) -> None:
    (line,) = (line for line in drawn(shown, 200) if line.startswith("requests"))
    assert line.split() == ["requests", "upstreams"]


def test_names_are_neither_markup_nor_commands_for_the_terminal() -> None:
    odd = "[red]\x1b[2Jx"
    answers = AdminAnswers(EMPTY, odd, {odd: UpstreamView(odd, 0, 0, odd)}, [UsedRow("d", odd, odd, 1, 1, 1, "0")], odd)
    text = "\n".join(drawn(view_model(answers, EMPTY, 0.0, EMPTY), 200))
    assert "\x1b" not in text
    assert "[red]\\x1b[2Jx" in text
