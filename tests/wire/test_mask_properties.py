"""A secret of the upstream never reaches a client, whatever stands around it."""

import string

from hypothesis import example, given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.core.units import MASK
from gateway.wire.http.redaction import LONGEST, Redactor

SECRETS = st.text(string.ascii_letters + string.digits + "-_./+=:", min_size=4, max_size=30)
AROUND = st.text(max_size=20) | st.sampled_from(
    ["sk-", "Bearer ", "bearer\t", "https://user:", "/home/", "_", "1.2.3.", "*" * 5, "x" * (LONGEST - 6)]
)


@examples(200)
@given(AROUND, SECRETS, AROUND)
@example("", "abcd", "")
@example("abc", "abcd", "bcd")
def test_an_own_secret_never_survives(before: str, secret: str, after: str):
    assert secret not in Redactor([secret])(before + secret + after)


@examples(200)
@given(SECRETS, SECRETS, AROUND)
def test_of_two_secrets_both_are_masked(one: str, other: str, around: str):
    masked = Redactor([one, other])(f"{one}{other}{around}{other}{one}")
    assert one not in masked
    assert other not in masked


@examples(200)
@given(st.text("abcdef", min_size=8, max_size=24), st.integers(-60, 90))
def test_no_beginning_of_a_secret_survives_the_cut(secret: str, room: int):
    masked = Redactor([secret])(secret * 2 + "." * (LONGEST - room) + secret)
    assert set(masked) <= {".", "*"}


@examples(200)
@given(st.text("abc 123,;'()", max_size=60))
def test_plain_words_are_unchanged(text: str):
    assert Redactor(["verysecret"])(text) == text


@examples(200)
@given(st.text(max_size=20), SECRETS)
def test_masking_twice_changes_nothing(text: str, secret: str):
    masker = Redactor([secret])
    once = masker(text + " " + secret)
    assert MASK in once
    assert masker(once) == once
