"""Current prices with their sources, and the cost of machines billed by the hour."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gateway.config.model import Config
from gateway.core.tokens import Price
from gateway.pricing.resolver import CONFIG, Pricing
from gateway.reporting.period import Period
from gateway.usage.store import UsageSummary

_HOUR = 3600


class Priced(NamedTuple):
    """A candidate of a public model, its price (None: unknown) and the price's source.

    `listed` is the price in `catalogue` if the two differ by more than 1 %.
    """

    model: str
    upstream: str
    sent_as: str
    price: Price | None
    source: str
    listed: Price | None = None
    catalogue: str = ""


class Machine(NamedTuple):
    """An upstream billed by the hour: its nano-dollars per hour, and the hours of a period."""

    upstream: str
    hourly: int
    hours: float

    @property
    def cost(self) -> int:
        """Nano-dollars if the machine ran all hours."""
        return round(self.hourly * self.hours)


def prices(config: Config, pricing: Pricing) -> Iterator[Priced]:
    """Yield the current price of every candidate; the first call may take a tenth of a second."""
    for name, model in config.models.items():
        for candidate in model.candidates:
            upstream = config.upstreams[candidate.upstream]
            resolved = pricing.resolve(candidate, upstream)
            row = Priced(name, upstream.name, candidate.model, resolved.price, resolved.source)
            if resolved.source == CONFIG and resolved.price is not None:
                listed = pricing.resolve(replace(candidate, price=None), upstream)
                if listed.listing and listed.price is not None and _differ(resolved.price, listed.price):
                    row = row._replace(listed=listed.price, catalogue=listed.source)
            yield row


def _differ(a: Price, b: Price) -> bool:
    pairs = ((a.input, b.input), (a.output, b.output), (a.cached_input, b.cached_input))
    return any(abs(x - y) * 100 > max(x, y) for x, y in pairs if x is not None and y is not None)


def machines(config: Config, usage: UsageSummary, period: Period, now: float) -> Iterator[Machine]:
    """Yield the upstreams with a price per hour; their hours count from the first call until `now` (Unix seconds)."""
    began = now if usage.first_call is None else usage.first_call
    seconds = max(0.0, min(now, period.ends) - max(began, period.begins))
    for name, upstream in config.upstreams.items():
        if upstream.gpu_hour_usd is not None:
            yield Machine(name, upstream.gpu_hour_usd, seconds / _HOUR)
