"""What a client wants of the cache, as its headers say."""

import pytest

from gateway.cache.control import USUAL, Wishes, wishes


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, USUAL),
        ({"x-sluice-cache": "off"}, None),
        ({"x-sluice-cache": " OFF "}, None),
        ({"x-sluice-cache": "off", "cache-control": "max-age=5"}, None),
        ({"x-sluice-cache": "on"}, Wishes(any_answer=True)),
        ({"x-sluice-cache": "maybe"}, USUAL),
        ({"cache-control": "no-cache"}, Wishes(look=False)),
        ({"cache-control": "No-Store"}, Wishes(keep=False)),
        ({"cache-control": "no-cache, no-store"}, Wishes(look=False, keep=False)),
        ({"cache-control": "max-age=60"}, Wishes(max_age=60.0)),
        ({"cache-control": 'max-age="60" , only-if-cached'}, Wishes(max_age=60.0, only_kept=True)),
        ({"cache-control": "max-stale=9, min-fresh=3, no-transform"}, USUAL),
        ({"cache-control": "max-age"}, USUAL),
        ({"cache-control": "max-age=-1, max-age=1e9,,=,no cache"}, USUAL),
        ({"cache-control": "max-age=99999999999"}, USUAL),
    ],
)
def test_wishes(headers: dict[str, str], expected: Wishes | None) -> None:
    assert wishes(headers) == expected
