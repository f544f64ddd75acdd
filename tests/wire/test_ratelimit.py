"""The headers of limits, as OpenAI writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.caller import KeyLimits, LimitStatus
from gateway.queueing import advertised_quota as quota
from gateway.wire.http.ratelimit_headers import duration, render


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0000001, "1ms"),
        (0.012, "12ms"),
        (0.0121, "13ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (7.66, "7.66s"),
        (59.9999, "1m0s"),
        (60, "1m0s"),
        (90.5, "1m30.5s"),
        (360, "6m0s"),
        (3630, "1h0m30s"),
        (86_400, "24h0m0s"),
        (-1, "0s"),
        (0.35, "350ms"),  # 0.35 * 1000 is a little more than 350
    ],
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(0, 200_000))
def test_a_duration_is_read_back_and_never_shorter_than_it_was(seconds: float) -> None:
    """By this gateway too, when it stands in front of another one."""
    read = quota.duration(duration(seconds))
    assert read is not None
    assert seconds - 1e-6 <= read <= seconds + 0.001


def test_only_existing_limits_have_headers() -> None:
    standing = LimitStatus(9, 6.0, 100, 0.5)
    requests = [
        "x-ratelimit-limit-requests: 10",
        "x-ratelimit-remaining-requests: 9",
        "x-ratelimit-reset-requests: 6s",
    ]
    tokens = [
        "x-ratelimit-limit-tokens: 150",
        "x-ratelimit-remaining-tokens: 100",
        "x-ratelimit-reset-tokens: 500ms",
    ]
    assert render(KeyLimits(rpm=10, tpm=150), standing).splitlines() == requests + tokens
    assert render(KeyLimits(rpm=10), standing).splitlines() == requests
    assert render(KeyLimits(tpm=150), standing).splitlines() == tokens
    assert render(KeyLimits(concurrency=3, usd_per_day=7), standing) == ""


def test_every_line_ends_as_a_header_does() -> None:
    text = render(KeyLimits(rpm=1, tpm=1), LimitStatus(0, 1.0, 0, 1.0))
    assert text.count("\r\n") == 6
    assert text.endswith("\r\n")
