"""Money as people read it: rounded so that what is shown still adds up."""

from collections.abc import Iterable, Iterator

from gateway.core.units import NANO

_PLACES = ((100 * NANO, 2), (NANO, 4))


class Rounding:
    """Rounds all amounts of a page to the same decimals: two for hundreds of dollars, up to six for cents."""

    def __init__(self, largest: int) -> None:
        """`largest` is the page's largest amount in nano-dollars."""
        self.places = next((places for bound, places in _PLACES if largest >= bound), 6)
        self._unit: int = 10 ** (9 - self.places)

    def units(self, nanos: int) -> int:
        """To the nearest unit of the last decimal, halves up."""
        return (2 * nanos + self._unit) // (2 * self._unit)

    def steps(self, start: int, less: Iterable[int]) -> Iterator[int]:
        """Units for each of these, taken from `start` one by one, so that what is left is rounded rightly."""
        for one in less:
            yield self.units(start) - self.units(start - one)
            start -= one

    def text(self, units: int) -> str:
        """In USD: `-1,234.50`."""
        whole, part = divmod(abs(units), 10**self.places)
        return f"{'-' if units < 0 else ''}{whole:,}.{part:0{self.places}d}"


def percent(part: int, whole: int) -> str:
    """One decimal; a dash where there is no whole."""
    if not whole:
        return "–"
    tenths = (2000 * part + whole) // (2 * whole)
    return f"{'-' if tenths < 0 else ''}{abs(tenths) // 10}.{abs(tenths) % 10} %"
