"""Values allowed in headers that cross the gateway."""

import string

from hypothesis import example, given
from hypothesis import strategies as st
from kit.pieces import examples

from gateway.wire.http import header_policy as headers

ID_CHARACTERS = set(string.ascii_letters + string.digits + "._-")
ANY_TEXT = st.text(max_size=10) | st.text("aZ0._-", max_size=140) | st.text(" \t\r\n\x00a\x7f\x80", max_size=5)


@examples(200)
@given(ANY_TEXT)
@example("a" * 128)
@example("a" * 129)
@example("abc\n")
@example("\u0661\u0662")  # digits, but not ours
def test_a_request_id_is_used_only_if_well_formed(given_id: str):
    well_formed = 1 <= len(given_id) <= 128 and set(given_id) <= ID_CHARACTERS
    assert headers.request_id(given_id) == (given_id if well_formed else None)


def test_no_request_id_is_none():
    assert headers.request_id(None) is None


@examples(200)
@given(ANY_TEXT)
@example("a" * 4096)
@example("a" * 4097)
@example("a\n")
@example("a\r\nx: y")
@example("\u2028")
def test_a_clean_value_can_be_written_and_splits_no_header(value: str):
    allowed = len(value) <= 4096 and all(" " <= one <= "~" or "\x80" <= one <= "\xff" for one in value)
    assert headers.clean(value) == (value if allowed else None)


@examples(200)
@given(st.lists(st.text("aB-z", min_size=1, max_size=6), max_size=4), st.sampled_from([",", ", ", " , "]))
def test_connection_names_end_here_with_the_hop_by_hop_ones(names: list[str], comma: str):
    ended = headers.named_by_connection(comma.join(names))
    always = headers.named_by_connection(None)
    assert ended - {""} == always | {name.lower() for name in names}


def test_the_hop_by_hop_headers_end_here():
    ended = headers.named_by_connection(None)
    assert {"connection", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive"} <= ended
    assert {"host", "content-length", "expect", "proxy-authorization", "proxy-connection"} <= ended
