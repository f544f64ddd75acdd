"""The inspector of one process: keeps what calls leave behind, and answers questions about them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.call import Call
from gateway.inspector.bodies import Bodies, BodyMask
from gateway.inspector.call_filter import CallFilter, FilterError
from gateway.inspector.call_record import CallRecord, CallSummary, position, record_of, summary_of
from gateway.inspector.call_ring import CallRing
from gateway.inspector.finished_call import FinishedCall, snapshot
from gateway.inspector.reasons import reasons

_MOST_LIVE = 200


class CallPage(Struct, frozen=True):
    """A page of finished calls, the last end first; `next` is the `before` of the next page, None on the last.

    `live` are calls under way. `kept` counts the finished calls in memory; `bodies`: they are kept too.
    """

    calls: list[CallSummary]
    live: list[CallSummary]
    next: str | None
    kept: int
    most: int
    bodies: bool


class CallDetails(Struct, frozen=True):
    """`GET /admin/calls/{id}`: the newest call with this id, and how many more there are."""

    call: CallRecord
    why: list[str]
    others: int = 0


class Inspector:
    """Keeps the last `calls` calls; 0 keeps none. `clock` gives monotonic seconds, `unix` those since 1970."""

    def __init__(self, clock: Callable[[], float], unix: Callable[[], float], worker: int = 0) -> None:
        self._clock = clock
        self._unix = unix
        self._number = worker * 1_000_000_000
        self._most = 0
        self._ring = CallRing(0, 0)
        self._mask = BodyMask(())
        self._secret_keys: frozenset[str] = frozenset()
        self._capturing: dict[Call, Bodies] = {}
        self.bodies = False
        self.live: Callable[[], Iterable[Call]] = tuple
        """The calls under way."""

    def apply(
        self, calls: int, max_bytes: int, *, bodies: bool, secrets: Iterable[str] = (), without: Iterable[str] = ()
    ) -> None:
        """Use these settings from now on; `without`: keys whose bodies are never kept. Bodies mask `secrets`."""
        if self.bodies and not bodies:
            self._ring = CallRing(0, 0)  # what was kept under another rule goes
        self._most, self.bodies = calls, bodies and calls > 0
        self._ring.resize(calls, max_bytes)
        self._mask = BodyMask(secrets)
        self._secret_keys = frozenset(without)

    @property
    def on(self) -> bool:
        """Whether calls are kept."""
        return self._most > 0

    def keep(self, call: Call, now: float) -> None:
        """Keep a call that has just ended."""
        self._number += 1
        bodies = self._capturing.pop(call, None) if self._capturing else None
        # A reload may have turned bodies off while the call was under way.
        self._ring.add(snapshot(call, self._number, now, now, bodies if self.bodies else None))

    def capture(self, call: Call) -> Bodies | None:
        """Where to put the call's answer; None if its bodies are not to be kept."""
        if not self.bodies or call.caller.key in self._secret_keys:
            return None
        bodies = self._capturing[call] = Bodies.of(call.request.body)
        return bodies

    def page(self, query: Mapping[str, str]) -> CallPage | dict[str, str]:
        """The calls that a URL's parameters ask for, or an `error`."""
        try:
            wanted = CallFilter.of(query)
        except FilterError as error:
            return {"error": str(error)}
        found = list(islice(self._matching(wanted), wanted.limit + 1))
        more = len(found) > wanted.limit
        calls = found[: wanted.limit]
        live = [] if wanted.before else [one for one in self._live() if wanted.matches(one)]
        return CallPage(calls, live, calls[-1].position if more else None, len(self._ring), self._most, self.bodies)

    def details(self, id: str) -> CallDetails | None:
        """The call under way with this id, else the one that ended last; None without any."""
        now = self._clock()
        found = [*self._under_way(now), *self._ring.newest_first()]
        same = [one for one in found if one.id == id]
        if not same:
            return None
        record = record_of(same[0], now, self._to_unix(now), self._mask)
        return CallDetails(record, [one.text for one in reasons(record)], len(same) - 1)

    def _matching(self, wanted: CallFilter) -> Iterator[CallSummary]:
        now = self._clock()
        to_unix = self._to_unix(now)
        for call in self._ring.newest_first():
            if wanted.before and position(call) >= wanted.before:
                continue
            summary = summary_of(call, now, to_unix)
            if wanted.matches(summary):
                yield summary

    def _live(self) -> list[CallSummary]:
        now = self._clock()
        to_unix = self._to_unix(now)
        return [summary_of(one, now, to_unix) for one in self._under_way(now)]

    def _under_way(self, now: float) -> list[FinishedCall]:
        return [snapshot(call, 0, 0.0, now) for call in islice(self.live(), _MOST_LIVE)] if self.on else []

    def _to_unix(self, now: float) -> Callable[[float], float]:
        offset = self._unix() - now
        return lambda moment: moment + offset


def merged(pages: Iterable[CallPage], limit: int) -> CallPage:
    """One page from those of several processes, each asked for `limit` calls."""
    pages = list(pages)
    calls = sorted((call for page in pages for call in page.calls), key=lambda call: call.position, reverse=True)
    live = sorted((call for page in pages for call in page.live), key=lambda call: call.at, reverse=True)
    shown = calls[:limit]
    more = len(calls) > limit or any(page.next is not None for page in pages)
    return CallPage(
        shown,
        live[:_MOST_LIVE],
        shown[-1].position if more and shown else None,
        sum(page.kept for page in pages),
        sum(page.most for page in pages),
        any(page.bodies for page in pages),
    )


def newest(found: Iterable[CallDetails]) -> CallDetails | None:
    """Of the calls with one id in several processes, the one under way, else the one that ended last."""
    same = sorted(found, key=lambda each: (each.call.summary.live, each.call.summary.position))
    if not same:
        return None
    return replace(same[-1], others=len(same) - 1 + sum(each.others for each in same))
