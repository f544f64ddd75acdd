"""What a client wants of the cache, as its headers say."""

import pytest

from gateway.cache.control import USUAL, CacheControl, cache_control


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, USUAL),
        ({"x-sluice-cache": "off"}, None),
        ({"x-sluice-cache": " OFF "}, None),
        ({"x-sluice-cache": "off", "cache-control": "max-age=5"}, None),
        ({"x-sluice-cache": "on"}, CacheControl(allow_sampled=True)),
        ({"x-sluice-cache": "maybe"}, USUAL),
        ({"cache-control": "no-cache"}, CacheControl(lookup=False)),
        ({"cache-control": "No-Store"}, CacheControl(store=False)),
        ({"cache-control": "no-cache, no-store"}, CacheControl(lookup=False, store=False)),
        ({"cache-control": "max-age=60"}, CacheControl(max_age=60.0)),
        ({"cache-control": 'max-age="60" , only-if-cached'}, CacheControl(max_age=60.0, only_if_cached=True)),
        ({"cache-control": "max-stale=9, min-fresh=3, no-transform"}, USUAL),
        ({"cache-control": "max-age"}, USUAL),
        ({"cache-control": "max-age=-1, max-age=1e9,,=,no cache"}, USUAL),
        ({"cache-control": "max-age=99999999999"}, USUAL),
    ],
)
def test_wishes(headers: dict[str, str], expected: CacheControl | None) -> None:
    assert cache_control(headers) == expected
