"""What each candidate costs, and from where that is known: the config, else the catalogue, else its kind."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gateway.config import model as cfg
from gateway.config.problems import join, plain
from gateway.core.call import Candidate, Price, Route
from gateway.core.clock import Clock
from gateway.pricing.catalogue import Catalogue, Listing, may_know
from gateway.usage.cost import FREE

CONFIG: Final = "config"
OWN: Final = "own engine"
UNKNOWN: Final = "unknown"
LOOK_S: Final = 60.0
"""Seconds between two looks at prices that depend on the time."""


class Known(NamedTuple):
    """A price (None: unknown), its source, and the listing that it came from."""

    price: Price | None
    source: str
    listing: Listing | None = None


class Pricing:
    """Prices of candidates. A Watcher: what is listed with dates or hours takes effect when they come."""

    def __init__(self, unix: Clock) -> None:
        """`unix` gives the seconds since 1970."""
        self._catalogue = Catalogue()
        self._unix = unix
        self._dated: list[tuple[Candidate, Listing]] = []
        self._look_at = 0.0

    def known(self, candidate: cfg.CandidateConfig, upstream: cfg.UpstreamConfig) -> Known:
        """What is known of a candidate's price now."""
        price = candidate.price
        if price is not None:
            cached = price.input if price.cached_input is None else price.cached_input
            written = price.cache_write, price.cache_write_long
            return Known(Price(price.input, price.output, cached, *written), CONFIG)
        if upstream.kind != "openai":
            return Known(FREE, OWN)
        listing = self._catalogue.listed(upstream.base_url, candidate.model)
        quote = listing.at(self._unix()) if listing is not None else None
        if quote is None:
            return Known(None, UNKNOWN)
        return Known(quote.price, f"genai-prices {self._catalogue.version}", listing)

    async def load(self, config: cfg.Config) -> None:
        """Do what takes time for this config, if it needs it, off the loop."""
        for _, candidate, upstream in candidates(config):
            if candidate.price is None and upstream.kind == "openai" and may_know(upstream.base_url):
                await asyncio.to_thread(self.known, candidate, upstream)
                return

    def watch(self, config: cfg.Config, routes: Mapping[str, Route]) -> bool:
        """Keep the prices of these routes right from now on. False if there is nothing to watch."""
        self._dated = []
        for name, model in config.models.items():
            for one, candidate in zip(model.candidates, routes[name].candidates, strict=True):
                listing = self.known(one, config.upstreams[one.upstream]).listing
                if listing is not None and listing.changes:
                    self._dated.append((candidate, listing))
        return bool(self._dated)

    def tick(self, now: float) -> None:
        """Watcher."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        for candidate, listing in self._dated:
            quote = listing.at(self._unix())
            candidate.price = None if quote is None else quote.price

    def unknown(self, config: cfg.Config) -> Iterator[str]:
        """A warning for each candidate whose price is not known."""
        for place, candidate, upstream in candidates(config):
            if self.known(candidate, upstream).price is None:
                yield (
                    f"{place}.price: what {plain(candidate.model)} costs at {upstream.name} is not known; "
                    "set it (0 is a price), or the kind of an engine of your own"
                )


def candidates(config: cfg.Config) -> Iterator[tuple[str, cfg.CandidateConfig, cfg.UpstreamConfig]]:
    """All candidates, each with its place in the config and its upstream."""
    for name, model in config.models.items():
        for number, one in enumerate(model.candidates):
            place = f"{join('models', name)}.candidates[{number}]"
            yield place, one, config.upstreams[one.upstream]
