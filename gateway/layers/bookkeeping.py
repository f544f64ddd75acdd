"""Enters calls that are over into the ledger: what they have used, and what others would have cost."""

from gateway.call import Call, Spent
from gateway.policy.savings import note_in_vain, note_last, note_spared
from gateway.policy.spending import NOTHING
from gateway.store.ledger import Ledger
from gateway.store.usage import CACHE


class Bookkeeping:
    """For calls whose caller and route are known; others have used nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def paid(self, call: Call, one: Spent, cost: int | None, now: float, last: bool) -> None:
        """Enter an attempt at the upstream that it went to (see `layers/spend.py`)."""
        if call.caller is None or call.route is None:
            return
        key = call.caller.name
        where = (call.day, key, call.route.name, one.candidate.upstream)
        self._ledger.add(*where, one.tokens, cost, last=last, estimated=one.estimated)
        (note_last if last else note_in_vain)(self._ledger.compared, call, key, one, cost)

    def spared(self, call: Call) -> None:
        """Enter a call that needed no upstream of its own: one request that has used nothing."""
        if call.caller is None or call.route is None:
            return
        self._ledger.add(call.day, call.caller.name, call.route.name, CACHE, NOTHING, 0)
        note_spared(self._ledger.compared, call, call.caller.name, CACHE)
