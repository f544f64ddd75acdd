"""Whatever is sent and whenever, no minute sees more than the upstream allows, and no call waits forever."""

import math

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.queueing.pacing import Pace

RATES = st.none() | st.floats(1, 50) | st.sampled_from([1.0, 2.5, 60.0, 100.0])
ARRIVALS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.01, 1.0, 20.0, 59.9, 61.0]), st.integers(1, 400)), max_size=150
)


def went(pace: Pace, arrivals: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """When the calls that can go at all went, each after the call before it, as in a queue."""
    now, gone, out = 5000.0, 5000.0, []
    for gap, tokens in arrivals:
        now += gap
        at = max(now, gone)
        wait = pace.wait(tokens, at)
        if wait == math.inf:
            continue
        tries = 0
        while wait > 0.0:
            at += max(0.001, wait)  # as timers do
            wait = pace.wait(tokens, at)
            tries += 1
            assert tries <= 5, "the reported wait is sufficient"
        pace.note(tokens, at)
        out.append((at, tokens))
        gone = at
    return out


@examples(200)
@given(RATES, RATES.map(lambda rate: rate and 10 * rate), ARRIVALS)
def test_no_minute_sees_more_than_the_rate(rpm: float | None, tpm: float | None, arrivals: list[tuple[float, int]]):
    out = went(Pace(rpm, tpm), arrivals)
    for at, _ in out:
        window = [tokens for then, tokens in out if at <= then <= at + 60.0]
        assert rpm is None or len(window) <= rpm
        assert tpm is None or sum(window) <= tpm


@examples(100)
@given(RATES, RATES.map(lambda rate: rate and 10 * rate), ARRIVALS)
def test_only_what_is_larger_than_the_rate_never_goes(
    rpm: float | None, tpm: float | None, arrivals: list[tuple[float, int]]
):
    fitting = [tokens for _, tokens in arrivals if tpm is None or tokens <= tpm]
    assert [tokens for _, tokens in went(Pace(rpm, tpm), arrivals)] == fitting
