"""Names are found where `bytes.find` and `bytes.count` find them, in texts of every size."""

import pytest

from gateway.wire.json import find as names

ROLE = b'"role"'
LONG = b"y" * 70_000
TEXTS = {
    "short": b'{"role":1,"a":{"role":2}}',
    "none": b'{"x":"' + LONG + b'"}',
    "at the ends": ROLE + LONG + ROLE,
    "behind many quotes": b'"q",' * 400 + LONG + ROLE,
    "many": ROLE * 100 + LONG + ROLE * 3,
    "in pieces": b'"rol' + LONG + b'"role' + b'""role"',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_results_equal_those_of_bytes_find_and_count(text: bytes) -> None:
    assert names.count(text, ROLE) == text.count(ROLE)
    for start in (0, 1, len(text) // 2, len(text) - 6, len(text)):
        assert names.find(text, ROLE, start) == text.find(ROLE, start)
