"""RETRY-02: what an upstream may say of waiting, and what is nonsense."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.http.retry_after import LONGEST_S, retry_after, wait_in_text, wait_of_delay

NOW = 784111777  # Sun, 06 Nov 1994 08:49:37 GMT

TOLD: dict[str, tuple[dict[str, str], float | None]] = {
    "seconds": ({"retry-after": "7"}, 7.0),
    "a fraction": ({"retry-after": "1.25"}, 1.25),
    "blanks": ({"retry-after": " 7 "}, 7.0),
    "ms": ({"retry-after-ms": "350"}, 0.35),
    "a fraction of ms": ({"retry-after-ms": "0.5"}, 0.0005),
    "ms win": ({"retry-after-ms": "350", "retry-after": "5"}, 0.35),
    "ms of a longer wait win too": ({"retry-after-ms": "9000", "retry-after": "5"}, 9.0),
    "a date": ({"retry-after": "Sun, 06 Nov 1994 08:49:39 GMT"}, 2.0),
    "a date of RFC 850": ({"retry-after": "Sunday, 06-Nov-94 08:49:39 GMT"}, 2.0),
    "a date of asctime": ({"retry-after": "Sun Nov  6 08:49:39 1994"}, 2.0),
    "a date with a zone": ({"retry-after": "Sun, 06 Nov 1994 09:49:39 +0100"}, 2.0),
    "a date against the answer's own": (
        {"retry-after": "Thu, 01 Jan 2026 00:00:09 GMT", "date": "Thu, 01 Jan 2026 00:00:02 GMT"},
        7.0,
    ),
    "a date against nonsense": ({"retry-after": "Sun, 06 Nov 1994 08:49:39 GMT", "date": "soon"}, 2.0),
    "a date in the past": ({"retry-after": "Sun, 06 Nov 1994 08:49:36 GMT"}, None),
    "a date that is now": ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, None),
    "an impossible date": ({"retry-after": "Sun, 32 Nov 1994 08:49:37 GMT"}, None),
    "zero": ({"retry-after": "0"}, None),
    "negative": ({"retry-after": "-3"}, None),
    "NaN": ({"retry-after": "NaN"}, None),
    "infinity": ({"retry-after": "inf"}, None),
    "beyond every number": ({"retry-after": "1e999"}, None),
    "soon": ({"retry-after": "soon"}, None),
    "empty": ({"retry-after": ""}, None),
    "two in one": ({"retry-after": "5, 10"}, None),
    "nonsense in ms": ({"retry-after-ms": "soon", "retry-after": "5"}, 5.0),
    "zero ms": ({"retry-after-ms": "0", "retry-after": "5"}, 5.0),
    "negative ms": ({"retry-after-ms": "-1", "retry-after": "5"}, 5.0),
    "NaN ms": ({"retry-after-ms": "nan", "retry-after": "5"}, 5.0),
    # Never earlier than asked: an absurd wait stays a long one, it does not become the usual short one.
    "1e9": ({"retry-after": "1e9"}, LONGEST_S),
    "a week": ({"retry-after": "604800"}, LONGEST_S),
    "a far date": ({"retry-after": "Wed, 06 Nov 2094 08:49:37 GMT"}, LONGEST_S),
    "none": ({}, None),
}


@pytest.mark.parametrize("name", TOLD)
def test_retry_02(name: str):
    headers, seconds = TOLD[name]
    assert retry_after(headers, NOW) == (None if seconds is None else pytest.approx(seconds))


@given(st.text(), st.text(), st.text())
def test_retry_02_no_text_is_too_odd(seconds: str, ms: str, date: str):
    found = retry_after({"retry-after": seconds, "retry-after-ms": ms, "date": date}, NOW)
    assert found is None or (math.isfinite(found) and 0 < found <= LONGEST_S)


@given(st.text(alphabet="0123456789 :,-+.GMTSunNovJa", max_size=40))
def test_retry_02_no_date_is_too_odd(told: str):
    found = retry_after({"retry-after": told}, NOW)
    assert found is None or 0 < found <= LONGEST_S


WORDS = {
    "Please retry in 37.5s.": 37.5,  # Gemini
    "Rate limit reached for gpt-5. Please try again in 7.66s. Visit https://platform.openai.com": 7.66,
    "Rate limit reached. Please try again in 1m2.5s.": 62.5,
    "Please try again in 6m0s.": 360.0,
    "Requests exceeded the rate limit. Please retry after 20 seconds.": 20.0,  # Azure
    "Too many requests, retry in 1 minute and 5 seconds": 65.0,
    "Please wait 250ms": 0.25,
    "You can try again in about 15 sec": 15.0,
    "quota resets in 2h": 7200.0,
    "retry_after: 12": 12.0,
    "Please try again later.": None,
    "limit 30 requests per 60s": None,
    "temperature must be in 0s": None,
    "retry in 0s": None,
    "": None,
}


@pytest.mark.parametrize("words", WORDS)
def test_the_wait_in_the_words_of_an_error(words: str) -> None:
    assert wait_in_text(words) == (None if WORDS[words] is None else pytest.approx(WORDS[words]))


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ("37s", 37.0),
        ("1.5s", 1.5),
        ("1m3s", 63.0),
        (3, 3.0),
        ("0.2", 0.2),
        ("x", None),
        (True, None),
        (None, None),
        (-1, None),
    ],
)
def test_a_delay_in_a_field(delay: object, seconds: float | None) -> None:
    assert wait_of_delay(delay) == seconds
