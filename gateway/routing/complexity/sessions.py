"""What is remembered of conversations and of keys, bounded: the least recently used is forgotten first."""

from collections import OrderedDict
from typing import Final

SESSIONS: Final = 65_536
_KEYS: Final = 4096
_WINDOW: Final = 100
"""Calls over which a key's share is counted, fading."""

_FADE: Final = 1.0 - 1.0 / _WINDOW


class Sessions:
    """Conversations that were raised to the strong tier. They are never lowered."""

    __slots__ = ("_most", "_raised")

    def __init__(self, most: int = SESSIONS) -> None:
        self._raised: OrderedDict[bytes, None] = OrderedDict()
        self._most = most

    def is_raised(self, session: bytes) -> bool:
        """Whether it was raised; keeps it from being forgotten."""
        if session not in self._raised:
            return False
        self._raised.move_to_end(session)
        return True

    def raise_(self, session: bytes) -> None:
        """From here on it is strong."""
        self._raised[session] = None
        self._raised.move_to_end(session)
        if len(self._raised) > self._most:
            self._raised.popitem(last=False)


class ShareCap:
    """The largest share of strong calls that one key may have, over about its last hundred."""

    __slots__ = ("_keys", "_most", "_new")

    def __init__(self, most: float) -> None:
        self._most = most
        self._new = (float(_WINDOW), max(most * _WINDOW - 1.0, 0.0))  # room for one
        self._keys: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, key: str) -> bool:
        """Whether one more strong call stays within the share. A new key begins as one that kept to it."""
        if self._most >= 1.0:
            return True
        calls, strong = self._keys.get(key, self._new)
        return strong * _FADE + 1.0 <= self._most * (calls * _FADE + 1.0)

    def note(self, key: str, strong: bool) -> None:
        """How a call of this key was decided."""
        if self._most >= 1.0:
            return
        calls, raised = self._keys.get(key, self._new)
        self._keys[key] = (calls * _FADE + 1.0, raised * _FADE + strong)
        self._keys.move_to_end(key)
        if len(self._keys) > _KEYS:
            self._keys.popitem(last=False)
