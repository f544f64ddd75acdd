"""Rounds money for display so that the rounded figures still add up."""

from collections.abc import Iterable, Iterator

from gateway.core.units import NANO

_PLACES = ((100 * NANO, 2), (NANO, 4))


class Rounding:
    """Rounds all amounts of a page to the same decimals: two for large amounts, up to six for small ones."""

    def __init__(self, largest: int) -> None:
        """`largest` is the page's largest amount in nano-dollars."""
        self.places = next((places for bound, places in _PLACES if largest >= bound), 6)
        self._unit: int = 10 ** (9 - self.places)

    def units(self, nanos: int) -> int:
        """Round to units of the last decimal, half up."""
        return (2 * nanos + self._unit) // (2 * self._unit)

    def steps(self, start: int, parts: Iterable[int]) -> Iterator[int]:
        """Yield the units of each part, subtracted from `start` in turn, so that every remainder is exact."""
        for part in parts:
            yield self.units(start) - self.units(start - part)
            start -= part

    def text(self, units: int) -> str:
        """Format units as USD: `-1,234.50`."""
        whole, part = divmod(abs(units), 10**self.places)
        return f"{'-' if units < 0 else ''}{whole:,}.{part:0{self.places}d}"


def percent(part: int, whole: int) -> str:
    """Format a share with one decimal; a dash if `whole` is 0."""
    if not whole:
        return "–"
    tenths = (2000 * part + whole) // (2 * whole)
    return f"{'-' if tenths < 0 else ''}{abs(tenths) // 10}.{abs(tenths) % 10} %"
