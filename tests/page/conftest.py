"""A real Chromium for the page, and what it may not do."""

import shutil
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from doubles.gateway import StartGateway
from doubles.upstream import FaultUpstream
from kit.browsing import Browsing
from playwright.async_api import async_playwright

CHROMIUM = shutil.which("chromium")


@pytest.fixture
async def browsing(start_gateway: StartGateway) -> AsyncIterator[Browsing]:
    """A browser, closed before the gateways; a page that complained or asked another host fails the test."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (make chromium)")
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        one = Browsing(chromium)
        try:
            yield one
        finally:
            await chromium.close()
        assert one.complaints == []


@pytest.fixture
def busy(upstream: FaultUpstream, other: FaultUpstream) -> Mapping[str, Any]:
    """A config with two upstreams, prices, keys with limits, and bodies kept."""
    return {
        "server": {"port": 0},
        "admin": {"port": 0},
        "inspector": {"bodies": True},
        "keys": [
            {"name": "team-a", "key": "gw-key-0123456789", "limits": {"rpm": 600, "tpm": 10**6, "usd_per_day": 5}},
            {"name": "small", "key": "gw-key-small-00001", "limits": {"rpm": 1}},
        ],
        "upstreams": {"local": {"base_url": upstream.url}, "paid": {"base_url": other.url}},
        "models": {
            "m-small": {
                "route": "cheapest",
                "fallbacks": ["m-large"],
                "candidates": [
                    {"upstream": "local", "model": "up-small", "price": {"input": 0.1, "output": 0.2}},
                    {"upstream": "paid", "model": "up-small", "price": {"input": 1, "output": 2}},
                ],
            },
            "m-large": {"candidates": [{"upstream": "paid", "model": "up-small", "price": {"input": 3, "output": 6}}]},
        },
        "usage": {"store": "off"},
        "log": {"level": "error", "format": "json"},
    }
