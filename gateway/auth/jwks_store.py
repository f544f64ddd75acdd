"""Keeps a provider's keys up to date off the path of requests, and through times in which it is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.auth.signing_keys import NoSigningKeysError, SigningKeys
from gateway.core.clock import Clock
from gateway.telemetry.logging import logger

UNKNOWN_KEY_S: Final = 60.0
"""Least seconds between two fetches because of a token whose signing key is not known."""
_FIRST_RETRY_S: Final = 5.0

Fetch = Callable[[], Awaitable[bytes]]


class KeysUnavailableError(Exception):
    """The key set cannot be read now; the message says why, in one line without secrets."""


class JwksStore:
    """A Tickable that reads a key set every `refresh_s` seconds, and keeps the last good one when that fails."""

    def __init__(self, name: str, fetch: Fetch, refresh_s: float, clock: Clock) -> None:
        """`fetch` returns the key set's text or raises KeysUnavailableError; `name` is for the log."""
        self.keys = SigningKeys()
        self._name = name
        self._fetch = fetch
        self._refresh_s = refresh_s
        self._clock = clock
        self._text = b""
        self._retry_s = _FIRST_RETRY_S
        self._next_at = 0.0
        self._asked_at = -UNKNOWN_KEY_S
        self._failing = False
        self._fetching: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Read the key set now, or wait for the reading that is under way. Never raises for a failure."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._read())
        # A client that leaves must not end what others wait for.
        await asyncio.shield(self._fetching)

    async def learn(self, now: float) -> bool:
        """Look for a key that is not known; at most once a minute. Returns whether the keys have been read."""
        under_way = self._fetching is not None and not self._fetching.done()
        if not under_way:
            if now - self._asked_at < UNKNOWN_KEY_S:
                return False
            self._asked_at = now
        await self.refresh()
        return True

    def tick(self, now: float) -> None:
        """Tickable: read the key set when it is due."""
        if now >= self._next_at and (self._fetching is None or self._fetching.done()):
            self._fetching = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Stop reading."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def _read(self) -> None:
        try:
            text = await self._fetch()
            if text != self._text:
                self.keys = SigningKeys.parse(text)
                self._text = text
        except (KeysUnavailableError, NoSigningKeysError) as error:
            self._next_at = self._clock() + self._retry_s
            self._retry_s = min(2 * self._retry_s, self._refresh_s)
            if not self._failing:
                known = "the keys that are known go on" if self._text else "none of its tokens is accepted"
                logger.warning("signing keys cannot be read, %s: %s", known, error, extra={"provider": self._name})
            self._failing = True
            return
        self._next_at = self._clock() + self._refresh_s
        self._retry_s = _FIRST_RETRY_S
        if self._failing:
            self._failing = False
            logger.info("signing keys are read again", extra={"provider": self._name})
