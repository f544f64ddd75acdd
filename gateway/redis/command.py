"""Commands for Redis: calls of Lua scripts, packed for the wire.

Packed by hand, and not by redis-py's `Connection.pack_command`, because a call's keys and constant arguments
are packed once for many calls (`Head`). Commands that are sent once per connection are packed by redis-py.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Final, NamedTuple, Self


class RedisFailure(Exception):
    """Redis did not execute a command, as far as is known; if `sent`, it may have."""

    def __init__(self, kind: str, sent: bool) -> None:
        super().__init__(kind)
        self.kind = kind
        self.sent = sent


Then = Callable[[bytes | RedisFailure], None]
"""Called with the reply to one command, or with its failure."""


class Script:
    """A Lua script, which Redis executes atomically."""

    def __init__(self, text: bytes) -> None:
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        self._by_sha = packed(b"EVALSHA", sha)
        self._by_text = packed(b"EVAL", text)
        self.text: Final = text

    @classmethod
    def named(cls, folder: str, *names: str) -> Self:
        """The files `name`.lua of a package folder, such as `gateway.limits.lua`, joined in this order."""
        package, _, inside = folder.rpartition(".")
        files = resources.files(package).joinpath(inside)
        return cls(b"\n".join([files.joinpath(f"{name}.lua").read_bytes() for name in names]))

    def call(self, words: int, tail: bytes, by_text: bool) -> bytes:
        """The command's bytes; `tail` packs the number of keys, the keys and the arguments: `words` words."""
        return b"*%d\r\n%b%b" % (words + 2, self._by_text if by_text else self._by_sha, tail)


class Head(NamedTuple):
    """The beginning of a call, packed once for many: its keys, and the arguments that never change."""

    words: int
    wire: bytes

    @classmethod
    def of(cls, keys: Sequence[bytes], *arguments: bytes) -> Self:
        """Packs keys and arguments."""
        return cls(1 + len(keys) + len(arguments), packed(b"%d" % len(keys), *keys, *arguments))


class Command:
    """One call of a script. If its `waiter` is cancelled before it is sent, it is not sent.

    `size` is the bytes of its arguments and of its reply, as far as `reply_size` says; they earn it time.
    """

    __slots__ = ("_script", "_tail", "_words", "done", "size", "then", "waiter")

    def __init__(
        self,
        script: Script,
        head: Head,
        arguments: Sequence[bytes],
        then: Then,
        waiter: asyncio.Future[Any] | None = None,
        reply_size: int = 0,
    ) -> None:
        self._script = script
        self._words = head.words + len(arguments)
        self._tail = head.wire + packed(*arguments)
        self.size = len(self._tail) + reply_size
        self.then = then
        self.waiter = waiter
        self.done = False

    def wire(self, by_text: bool) -> bytes:
        """The command's bytes, with the script's text or with its digest."""
        return self._script.call(self._words, self._tail, by_text)

    def finish(self, outcome: bytes | RedisFailure) -> None:
        """Passes on the outcome; called once."""
        self.done = True
        self.then(outcome)


class LateCommand(Command):
    """A command whose arguments are chosen when it is sent, and each time that it is sent again."""

    __slots__ = ("_choose", "_head")

    def __init__(self, script: Script, head: Head, choose: Callable[[], Sequence[bytes]], then: Then) -> None:
        super().__init__(script, head, (), then)
        self._head = head
        self._choose = choose

    def wire(self, by_text: bool) -> bytes:
        """The command's bytes, with the arguments of now."""
        arguments = self._choose()
        tail = self._head.wire + packed(*arguments)
        return self._script.call(self._head.words + len(arguments), tail, by_text)


def packed(*words: bytes) -> bytes:
    """The words as RESP bulk strings, without the count that precedes them."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])
