"""Cache directives in request headers."""

import pytest

from gateway.cache.control import DEFAULT, CacheControl, cache_control


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, DEFAULT),
        ({"x-sluice-cache": "off"}, None),
        ({"x-sluice-cache": " OFF "}, None),
        ({"x-sluice-cache": "off", "cache-control": "max-age=5"}, None),
        ({"x-sluice-cache": "on"}, CacheControl(allow_sampled=True)),
        ({"x-sluice-cache": "maybe"}, DEFAULT),
        ({"cache-control": "no-cache"}, CacheControl(lookup=False)),
        ({"cache-control": "No-Store"}, CacheControl(store=False)),
        ({"cache-control": "no-cache, no-store"}, CacheControl(lookup=False, store=False)),
        ({"cache-control": "max-age=60"}, CacheControl(max_age=60.0)),
        ({"cache-control": 'max-age="60" , only-if-cached'}, CacheControl(max_age=60.0, only_if_cached=True)),
        ({"cache-control": "max-stale=9, min-fresh=3, no-transform"}, DEFAULT),
        ({"cache-control": "max-age"}, DEFAULT),
        ({"cache-control": "max-age=-1, max-age=1e9,,=,no cache"}, DEFAULT),
        ({"cache-control": "max-age=99999999999"}, DEFAULT),
    ],
)
def test_cache_directives(headers: dict[str, str], expected: CacheControl | None) -> None:
    assert cache_control(headers) == expected
