"""What prices hold now and where they come from, and what machines of one's own cost in the meantime."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gateway.config.model import Config
from gateway.core.tokens import Price
from gateway.pricing.resolver import CONFIG, Pricing
from gateway.reporting.period import Period
from gateway.usage.store import UsageSnapshot

HOURS = 24


class Priced(NamedTuple):
    """A candidate of a public model, its price (None: unknown) and where that comes from.

    `listed` is what the catalogue `catalogue` has instead, where the two differ by more than 1 %.
    """

    model: str
    upstream: str
    sent_as: str
    price: Price | None
    source: str
    listed: Price | None = None
    catalogue: str = ""


class Machine(NamedTuple):
    """An upstream that is paid by the hour, and nano-dollars for a whole period, if it ran all the time."""

    upstream: str
    hourly: int
    hours: int

    @property
    def cost(self) -> int:
        """For all hours."""
        return self.hourly * self.hours


def prices(config: Config, pricing: Pricing) -> Iterator[Priced]:
    """As they are now. It may take a tenth of a second."""
    for name, model in config.models.items():
        for candidate in model.candidates:
            upstream = config.upstreams[candidate.upstream]
            known = pricing.known(candidate, upstream)
            found = Priced(name, upstream.name, candidate.model, known.price, known.source)
            if known.source == CONFIG and known.price is not None:
                other = pricing.known(replace(candidate, price=None), upstream)
                if (
                    other.listing is not None
                    and other.price is not None
                    and _differ(known.price, other.price)
                ):
                    found = found._replace(listed=other.price, catalogue=other.source)
            yield found


def _differ(one: Price, other: Price) -> bool:
    pairs = ((one.input, other.input), (one.output, other.output), (one.cached_input, other.cached_input))
    return any(abs(a - b) * 100 > max(a, b) for a, b in pairs if a is not None and b is not None)


def machines(config: Config, books: UsageSnapshot, period: Period) -> Iterator[Machine]:
    """Of upstreams that state what they cost an hour, since the first day that is in the books."""
    first = min([row.day for row in books.rows], default=None)
    days = period._replace(first=first).days if first is not None else 0
    for name, upstream in config.upstreams.items():
        if upstream.gpu_hour_usd is not None:
            yield Machine(name, upstream.gpu_hour_usd, days * HOURS)
