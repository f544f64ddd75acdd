"""Model prices of providers, identified by their address, from the package genai-prices.

The catalogue ships with that package and is never downloaded. Importing it takes a tenth of a second and
25 MB, so it is imported on the first lookup of an address that could be a provider's.
"""

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from gateway.core.tokens import Price, Tier
from gateway.core.units import NANO

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

_KEYS: Final = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")


class Quote(NamedTuple):
    """A price, and the names of the charges that it does not include."""

    price: Price
    excluded: tuple[str, ...]


class Listing:
    """One model of the catalogue."""

    def __init__(self, info: "ModelInfo") -> None:
        self._info = info
        dated = info.prices if isinstance(info.prices, list) else []
        self.changes = any(entry.constraint is not None for entry in dated)
        """Whether the price depends on the day or the hour."""

        kinds = {type(entry.constraint).__name__ for entry in dated}
        self.changes_within_a_day = "TimeOfDateConstraint" in kinds

    def at(self, now: float) -> Quote | None:
        """Return the quote at this time (seconds since 1970); None for a model not priced by token."""
        if not self._info.prices:
            return None
        entry = self._info.get_prices(_utc(now))
        price = _price(entry)
        return None if price is None else Quote(price, tuple(_excluded(entry)))

    def next_change(self, now: float) -> str | None:
        """Return the first day of the next announced price."""
        dated = self._info.prices if isinstance(self._info.prices, list) else []
        starts = [getattr(entry.constraint, "start_date", None) for entry in dated]
        later = [start for start in starts if start is not None and start > _utc(now).date()]
        return min(later).isoformat() if later else None


class Catalogue:
    """Looks up models by provider address and name; never guesses."""

    def __init__(self) -> None:
        self._providers: list[Provider] | None = None
        self.version = ""  # set on the first lookup

    def listed(self, base_url: str, model: str) -> Listing | None:
        """Return this model of the provider at this address; None if either is unknown."""
        if not may_be_listed(base_url):
            return None
        providers = self._loaded()
        for provider in providers:
            if _matches(provider.api_pattern, base_url):
                info = provider.find_model(model, all_providers=providers)
                return None if info is None else Listing(info)
        return None

    def _loaded(self) -> "list[Provider]":
        if self._providers is None:
            import genai_prices
            from genai_prices.data import providers

            self._providers, self.version = providers, genai_prices.__version__
        return self._providers


def may_be_listed(base_url: str) -> bool:
    """Return whether this could be a provider's address; the catalogue is not loaded for others."""
    url = urlsplit(base_url)
    host = url.hostname or ""
    return url.scheme == "https" and url.port in (None, 443) and re.search(r"\.[a-z]+$", host) is not None


def _matches(pattern: str, base_url: str) -> bool:
    """Return whether an address matches a provider's pattern up to a boundary of the host or path."""
    host = f"https://{urlsplit(base_url).hostname}"
    subject = base_url if "/" in pattern.removeprefix("https://") else host
    match = re.match(pattern, subject)
    return match is not None and (match[0].endswith(("/", ".")) or subject[match.end() :][:1] in ("", "/"))


def _price(entry: "ModelPrice") -> Price | None:
    if entry.input_mtok is None:
        return None
    if entry.output_mtok is None and any(name.startswith("output_") for name in _charges(entry)):
        return None  # output other than text, such as speech
    tiers = {tier.start for name in _KEYS for tier in getattr(getattr(entry, name), "tiers", ())}
    higher = tuple(Tier(start, _tier_price(entry, start)) for start in sorted(tiers))
    return _tier_price(entry, -1)._replace(tiers=higher)


def _tier_price(entry: "ModelPrice", start: int) -> Price:
    input_price, output, read, write, long = (_nanos(getattr(entry, name), start) for name in _KEYS)
    if input_price is None:
        raise AssertionError("`_price` has checked this")
    return Price(input_price, output, input_price if read is None else read, write, long)


def _nanos(value: object, start: int) -> int | None:
    """Return the nano-dollars per million of the tier that starts here, rounded up."""
    tiers = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start]
    dollars = tiers[-1] if tiers else getattr(value, "base", value)
    return ceil(dollars * NANO) if isinstance(dollars, Decimal) else None


def _excluded(entry: "ModelPrice") -> Iterator[str]:
    for name in _charges(entry):
        if name not in _KEYS:
            yield re.sub("_(mtok|kcount|kpages|mchars|hours)$", "", name).replace("_", " ")


def _charges(entry: "ModelPrice") -> list[str]:
    return [name for name, value in vars(entry).items() if value is not None]


def _utc(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)
