"""What models cost at providers that are known by their address: the catalogue of the package genai-prices.

It is a part of that package and never downloaded. Importing it takes a tenth of a second and 25 MB, so it is
imported when it is first asked for an address that could be a provider's.
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
    """A price, and what it leaves out, in words."""

    price: Price
    leaves_out: tuple[str, ...]


class Listing:
    """One model of the catalogue."""

    def __init__(self, info: "ModelInfo") -> None:
        self._info = info
        dated = info.prices if isinstance(info.prices, list) else []
        self.changes = any(one.constraint is not None for one in dated)
        """Whether its price depends on the day or on the hour."""

        kinds = {type(one.constraint).__name__ for one in dated}
        self.changes_within_a_day = "TimeOfDateConstraint" in kinds

    def at(self, now: float) -> Quote | None:
        """What holds at this time (seconds since 1970); None where it is not priced by the token."""
        if not self._info.prices:
            return None
        found = self._info.get_prices(_utc(now))
        price = _price(found)
        return None if price is None else Quote(price, tuple(_leaves_out(found)))

    def next_change(self, now: float) -> str | None:
        """The next day from which another price is announced."""
        dated = self._info.prices if isinstance(self._info.prices, list) else []
        starts = [getattr(one.constraint, "start_date", None) for one in dated]
        later = [start for start in starts if start is not None and start > _utc(now).date()]
        return min(later).isoformat() if later else None


class Catalogue:
    """`listed` is None for models and addresses that it does not know: nothing is ever guessed."""

    def __init__(self) -> None:
        self._providers: list[Provider] | None = None
        self.version = ""  # once it is loaded

    def listed(self, base_url: str, model: str) -> Listing | None:
        """The model of this name at the provider of this address."""
        if not may_know(base_url):
            return None
        providers = self._loaded()
        for provider in providers:
            if _at(provider.api_pattern, base_url):
                info = provider.find_model(model, all_providers=providers)
                return None if info is None else Listing(info)
        return None

    def _loaded(self) -> "list[Provider]":
        if self._providers is None:
            import genai_prices
            from genai_prices.data import providers

            self._providers, self.version = providers, genai_prices.__version__
        return self._providers


def may_know(base_url: str) -> bool:
    """Whether this could be a provider's address at all. The catalogue is not loaded for others."""
    url = urlsplit(base_url)
    host = url.hostname or ""
    return url.scheme == "https" and url.port in (None, 443) and re.search(r"\.[a-z]+$", host) is not None


def _at(pattern: str, base_url: str) -> bool:
    """Whether an address is that of a provider's pattern, and does not merely begin or end like it."""
    host = f"https://{urlsplit(base_url).hostname}"
    subject = base_url if "/" in pattern.removeprefix("https://") else host
    found = re.match(pattern, subject)
    return found is not None and (found[0].endswith(("/", ".")) or subject[found.end() :][:1] in ("", "/"))


def _price(found: "ModelPrice") -> Price | None:
    if found.input_mtok is None:
        return None
    if found.output_mtok is None and any(name.startswith("output_") for name in _given(found)):
        return None  # such as speech, whose output is no text
    tiers = {tier.start for name in _KEYS for tier in getattr(getattr(found, name), "tiers", ())}
    higher = tuple(Tier(start, _of_tier(found, start)) for start in sorted(tiers))
    return _of_tier(found, -1)._replace(tiers=higher)


def _of_tier(found: "ModelPrice", start: int) -> Price:
    given, made, read, write, long = (_nanos(getattr(found, name), start) for name in _KEYS)
    if given is None:
        raise AssertionError("looked at before")
    return Price(given, made, given if read is None else read, write, long)


def _nanos(value: object, start: int) -> int | None:
    """Nano-dollars for a million, of the tier that begins there; a fraction of one is rounded up."""
    tiers = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= start]
    dollars = tiers[-1] if tiers else getattr(value, "base", value)
    return ceil(dollars * NANO) if isinstance(dollars, Decimal) else None


def _leaves_out(found: "ModelPrice") -> Iterator[str]:
    for name in _given(found):
        if name not in _KEYS:
            yield re.sub("_(mtok|kcount|kpages|mchars|hours)$", "", name).replace("_", " ")


def _given(found: "ModelPrice") -> list[str]:
    return [name for name, value in vars(found).items() if value is not None]


def _utc(now: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(now, datetime.UTC)
