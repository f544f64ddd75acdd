"""Objects that outlive a reload because they belong to a name, such as an upstream's circuit breaker."""

from collections.abc import Callable, Container
from typing import Generic, TypeVar

_T = TypeVar("_T")


class KeyedRegistry(Generic[_T]):
    """One object per name, replaced only when the settings it was made from change."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[object, _T]] = {}

    def get(self, name: str, settings: object, make: Callable[[], _T]) -> _T:
        """The object of this name; `make` creates it."""
        entry = self._made.get(name)
        if entry is None or entry[0] != settings:
            entry = self._made[name] = (settings, make())
        return entry[1]

    def retain(self, names: Container[str]) -> None:
        """Forget the objects of all other names."""
        for name in [name for name in self._made if name not in names]:
            del self._made[name]
