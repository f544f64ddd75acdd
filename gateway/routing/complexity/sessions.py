"""Bounded LRU memory of conversations and keys for the complexity router."""

from collections import OrderedDict
from typing import Final

SESSIONS: Final = 65_536
_KEYS: Final = 4096
_WINDOW: Final = 100
"""Number of calls over which a key's share is averaged, with exponential fading."""

_FADE: Final = 1.0 - 1.0 / _WINDOW


class Sessions:
    """Conversations raised to the strong tier; they are never lowered."""

    __slots__ = ("_max_sessions", "_raised")

    def __init__(self, max_sessions: int = SESSIONS) -> None:
        self._raised: OrderedDict[bytes, None] = OrderedDict()
        self._max_sessions = max_sessions

    def is_raised(self, session: bytes) -> bool:
        """Return whether the session was raised, and mark it as recently used."""
        if session not in self._raised:
            return False
        self._raised.move_to_end(session)
        return True

    def raise_(self, session: bytes) -> None:
        """Raise the session to the strong tier."""
        self._raised[session] = None
        self._raised.move_to_end(session)
        if len(self._raised) > self._max_sessions:
            self._raised.popitem(last=False)


class ShareCap:
    """Caps each key's share of strong calls, over about its last hundred calls."""

    __slots__ = ("_keys", "_max_share", "_new")

    def __init__(self, max_share: float) -> None:
        self._max_share = max_share
        self._new = (float(_WINDOW), max(max_share * _WINDOW - 1.0, 0.0))  # room for one strong call
        self._keys: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, key: str) -> bool:
        """Return whether one more strong call stays within the cap; a new key starts just below it."""
        if self._max_share >= 1.0:
            return True
        calls, strong = self._keys.get(key, self._new)
        return strong * _FADE + 1.0 <= self._max_share * (calls * _FADE + 1.0)

    def note(self, key: str, strong: bool) -> None:
        """Record the tier of a call of this key."""
        if self._max_share >= 1.0:
            return
        calls, raised = self._keys.get(key, self._new)
        self._keys[key] = (calls * _FADE + 1.0, raised * _FADE + strong)
        self._keys.move_to_end(key)
        if len(self._keys) > _KEYS:
            self._keys.popitem(last=False)
