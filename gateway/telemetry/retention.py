"""Series whose labels name nothing any more: released a while after a reload, in small steps."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from gateway.telemetry.series import Family

RELEASE_AFTER_S: Final = 30.0
"""Seconds from a reload to the release: two scrapes at the usual interval see the last values."""

_STEP: Final = 2000
"""Series looked at in one tick: about a millisecond."""


class Retention:
    """Releases the series of models, upstreams and keys that a reload has removed. A Tickable."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(families)
        self._names: Mapping[str, Collection[str]] = {}
        self._due = 0.0
        self._work: Iterator[object] | None = None

    def reloaded(self, names: Mapping[str, Collection[str]], now: float) -> None:
        """From now on only these names are in use, by label; labels without an entry may have any value."""
        self._names, self._due, self._work = names, now + RELEASE_AFTER_S, None

    def tick(self, now: float) -> None:
        """Go on with the search. It begins again after its end, because calls of before the reload still end."""
        if not self._names or now < self._due:
            return
        if self._work is None:
            self._work = self._search()
        if len(list(islice(self._work, _STEP))) < _STEP:
            self._work, self._due = None, now + RELEASE_AFTER_S

    def _search(self) -> Iterator[object]:
        for family in self._families:
            named = [(at, self._names[label]) for at, label in enumerate(family.labels) if label in self._names]
            for labels in list(family.series) if named else ():
                if not all(labels[at] in names for at, names in named):
                    family.release(labels)
                yield None
