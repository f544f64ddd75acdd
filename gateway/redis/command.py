"""What is sent to Redis: scripts, and calls of them packed for the wire once."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, Self


class RedisFailure(Exception):
    """Redis did not do what it was asked. `sent`: it may have been done all the same."""

    def __init__(self, kind: str, sent: bool) -> None:
        super().__init__(kind)
        self.kind = kind
        self.sent = sent


Then = Callable[[bytes | RedisFailure], None]
"""Takes the reply of one call, or what became of it."""


class Script:
    """A Lua script; Redis runs each call of it as one atomic step."""

    def __init__(self, text: bytes) -> None:
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        self._by_sha = packed(b"EVALSHA", sha)
        self._by_text = packed(b"EVAL", text)
        self.load: Final = b"*3\r\n" + packed(b"SCRIPT", b"LOAD", text)

    @classmethod
    def named(cls, folder: str, *names: str) -> Self:
        """The scripts `name`.lua of the package folder, such as `gateway.limits.lua`, one after another."""
        package, _, inside = folder.rpartition(".")
        files = resources.files(package).joinpath(inside)
        return cls(b"\n".join([files.joinpath(f"{name}.lua").read_bytes() for name in names]))

    def call(self, words: int, tail: bytes, by_text: bool) -> bytes:
        """One command; `tail` is the number of keys, the keys and the arguments, `words` in all."""
        return b"*%d\r\n%b%b" % (words + 2, self._by_text if by_text else self._by_sha, tail)


class Head(NamedTuple):
    """The beginning of a call, packed once for many: the keys, and arguments that are always the same."""

    words: int
    wire: bytes

    @classmethod
    def of(cls, keys: Sequence[bytes], *arguments: bytes) -> Self:
        """Packs it."""
        return cls(1 + len(keys) + len(arguments), packed(b"%d" % len(keys), *keys, *arguments))


class Command:
    """One call of a script on its way. `waiter`, where given, may be cancelled before it is sent."""

    __slots__ = ("_script", "_tail", "_words", "done", "then", "waiter")

    def __init__(
        self,
        script: Script,
        head: Head,
        arguments: Sequence[bytes],
        then: Then,
        waiter: asyncio.Future[Any] | None = None,
    ) -> None:
        self._script = script
        self._words = head.words + len(arguments)
        self._tail = head.wire + packed(*arguments)
        self.then = then
        self.waiter = waiter
        self.done = False

    def wire(self, by_text: bool) -> bytes:
        """Its bytes, naming the script by its digest or in full."""
        return self._script.call(self._words, self._tail, by_text)

    def finish(self, outcome: bytes | RedisFailure) -> None:
        """Hands the outcome over, once."""
        self.done = True
        self.then(outcome)


def packed(*words: bytes) -> bytes:
    """The words as RESP bulk strings, without the count before them."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])
