"""The paths of files and batches, and what may be done with each."""

from typing import Final, NamedTuple
from urllib.parse import unquote

from gateway.core.endpoint import Endpoint
from gateway.wire.openai.models import BATCHES, FILES

# By area and the number of parts behind it; the second part is a fixed word.
_METHODS: Final = {
    (FILES, ""): ("GET", "POST"),
    (FILES, "id"): ("GET", "DELETE"),
    (FILES, "content"): ("GET",),
    (BATCHES, ""): ("GET", "POST"),
    (BATCHES, "id"): ("GET",),
    (BATCHES, "cancel"): ("POST",),
}


class StoredTarget(NamedTuple):
    """A path below `area`; `what` is empty for the list itself, `id` for one entry, or a word behind its id."""

    area: Endpoint
    id: str
    what: str

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are allowed."""
        return _METHODS[self.area, self.what]


def find(path: str) -> StoredTarget | None:
    """What a path with its `/v1` names; None if it is none of these."""
    for area in (FILES, BATCHES):
        if path == area:
            return StoredTarget(area, "", "")
        if path.startswith(area + "/"):
            id, _, word = path.removeprefix(area + "/").partition("/")
            what = word or "id"
            return StoredTarget(area, unquote(id), what) if what != "" and (area, what) in _METHODS else None
    return None
