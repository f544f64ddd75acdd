"""Resolves the price of each candidate: from the config, else the catalogue, else its upstream's kind."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gateway.config import model as cfg
from gateway.config.problems import join, plain
from gateway.core.call import Candidate, Price, Route
from gateway.core.clock import Clock
from gateway.pricing.catalogue import Catalogue, Listing, may_be_listed
from gateway.usage.cost import FREE

CONFIG: Final = "config"
SELF_HOSTED: Final = "self-hosted"
UNKNOWN: Final = "unknown"
REFRESH_S: Final = 60.0
"""Seconds between two refreshes of prices that depend on the time."""


class ResolvedPrice(NamedTuple):
    """A price (None: unknown), its source, and its listing in the catalogue."""

    price: Price | None
    source: str
    listing: Listing | None = None


class Pricing:
    """Prices of candidates. As a `Tickable` it applies listed price changes when their day or hour comes."""

    def __init__(self, unix: Clock) -> None:
        """`unix` returns the seconds since 1970."""
        self._catalogue = Catalogue()
        self._unix = unix
        self._dated: list[tuple[Candidate, Listing]] = []
        self._refresh_at = 0.0

    def resolve(self, candidate: cfg.CandidateConfig, upstream: cfg.UpstreamConfig) -> ResolvedPrice:
        """Return a candidate's current price."""
        price = candidate.price
        if price is not None:
            cached = price.input if price.cached_input is None else price.cached_input
            written = price.cache_write, price.cache_write_long
            return ResolvedPrice(Price(price.input, price.output, cached, *written), CONFIG)
        if upstream.kind not in cfg.PROVIDERS:
            return ResolvedPrice(FREE, SELF_HOSTED)
        listing = self._catalogue.listed(upstream.base_url, candidate.model)
        quote = listing.at(self._unix()) if listing is not None else None
        if quote is None:
            return ResolvedPrice(None, UNKNOWN)
        return ResolvedPrice(quote.price, f"genai-prices {self._catalogue.version}", listing)

    async def load(self, config: cfg.Config) -> None:
        """Import the catalogue in a thread, if this config needs it."""
        for _, candidate, upstream in candidates(config):
            if candidate.price is None and upstream.kind in cfg.PROVIDERS and may_be_listed(upstream.base_url):
                await asyncio.to_thread(self.resolve, candidate, upstream)
                return

    def watch(self, config: cfg.Config, routes: Mapping[str, Route]) -> bool:
        """Update the prices of these routes on each tick; return False if none depends on the time."""
        self._dated = []
        for name, model in config.models.items():
            for configured, candidate in zip(model.candidates, routes[name].candidates, strict=True):
                listing = self.resolve(configured, config.upstreams[configured.upstream]).listing
                if listing is not None and listing.changes:
                    self._dated.append((candidate, listing))
        return bool(self._dated)

    def tick(self, now: float) -> None:
        """Refresh the prices that depend on the time."""
        if now < self._refresh_at:
            return
        self._refresh_at = now + REFRESH_S
        for candidate, listing in self._dated:
            quote = listing.at(self._unix())
            candidate.price = None if quote is None else quote.price

    def warnings(self, config: cfg.Config) -> Iterator[str]:
        """Yield a warning for each candidate without a known price."""
        for path, candidate, upstream in candidates(config):
            if self.resolve(candidate, upstream).price is None:
                yield (
                    f"{path}.price: the price of {plain(candidate.model)} at {upstream.name} is not known; "
                    "set it (0 is a price), or set the upstream's kind if it is your own engine"
                )


def candidates(config: cfg.Config) -> Iterator[tuple[str, cfg.CandidateConfig, cfg.UpstreamConfig]]:
    """Yield all candidates, each with its path in the config and its upstream."""
    for name, model in config.models.items():
        for number, candidate in enumerate(model.candidates):
            path = f"{join('models', name)}.candidates[{number}]"
            yield path, candidate, config.upstreams[candidate.upstream]
