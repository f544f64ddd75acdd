"""The limits of requests and places, asked at the door: a call that they refuse anyway is not read."""

from collections.abc import Iterable
from typing import Final

from gateway.call import CHAT, COMPLETIONS, EMBEDDINGS, Call
from gateway.caller import Caller
from gateway.errors import Refusal
from gateway.policy.account import Account
from gateway.policy.limit import Limit

_COUNTED: Final = frozenset((CHAT, COMPLETIONS, EMBEDDINGS))


class Full:
    """Gate: refuses what `Limit` would refuse anyway, and takes nothing."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit

    def admit(self, call: Call, now: float) -> Refusal | None:
        """Let it pass, unless the account of its key is full for any call."""
        account = call.caller.account if call.caller is not None else None
        if not isinstance(account, Account):
            return None
        denial = account.full(now)
        if denial is None or call.endpoint not in _COUNTED:
            return None
        return self._limit.refused(call, account.terms, denial, now)


def full(limit: Limit, callers: Iterable[Caller]) -> tuple[Full, ...]:
    """The gate, where it is of use for one of these callers."""
    terms = [one.account.terms for one in callers if isinstance(one.account, Account)]
    return (Full(limit),) if any(one.rpm is not None or one.concurrency is not None for one in terms) else ()
