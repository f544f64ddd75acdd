"""A secret of the upstream never reaches a client, whatever stands around it."""

import string

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.units import MASK
from gateway.wire.mask import LONGEST, Masker

FEW = settings(max_examples=200, deadline=None)
SECRETS = st.text(string.ascii_letters + string.digits + "-_./+=:", min_size=4, max_size=30)
AROUND = st.text(max_size=20) | st.sampled_from(
    ["sk-", "Bearer ", "bearer\t", "https://user:", "/home/", "_", "1.2.3.", "*" * 5, "x" * (LONGEST - 6)]
)


@FEW
@given(AROUND, SECRETS, AROUND)
@example("", "abcd", "")
@example("abc", "abcd", "bcd")
def test_an_own_secret_never_survives(before: str, secret: str, after: str) -> None:
    assert secret not in Masker([secret])(before + secret + after)


@FEW
@given(SECRETS, SECRETS, AROUND)
def test_of_two_secrets_neither_survives(one: str, other: str, around: str) -> None:
    masked = Masker([one, other])(f"{one}{other}{around}{other}{one}")
    assert one not in masked
    assert other not in masked


@FEW
@given(st.text("abcdef", min_size=8, max_size=24), st.integers(1, 30))
def test_no_beginning_of_a_secret_survives_the_cut(secret: str, room: int) -> None:
    masked = Masker([secret])("." * (LONGEST - room) + secret)
    assert set(masked) <= {".", "*"}


@FEW
@given(st.text("abc 123,;'()", max_size=60))
def test_plain_words_are_kept(text: str) -> None:
    assert Masker(["verysecret"])(text) == text


@FEW
@given(st.text(max_size=20), SECRETS)
def test_masking_twice_changes_nothing(text: str, secret: str) -> None:
    masker = Masker([secret])
    once = masker(text + " " + secret)
    assert MASK in once
    assert masker(once) == once
