"""One worker as its parent sees it: a process that takes configs through a pipe, and answers on a socket.

Secrets go through the pipe, not through arguments or the environment. It stays open: a worker whose parent
has died sees it close, and drains.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector

from gateway.config.model import Config
from gateway.process.lifecycle import READY, TAKEN, encode_config

_ASK_S = 1.0  # for an answer to the admin port
_TAKE_S = 30.0  # for putting another config in force


class WorkerProcess:
    """Worker `number` (from 0). `folder` is for its socket and its counters."""

    def __init__(self, number: int, folder: Path, config: Config) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()  # has been, once
        self._folder = folder
        self._config = config
        self._orders = 0
        self._talking = asyncio.Lock()
        self._stopping = False

    async def start(self) -> asyncio.subprocess.Process:
        """Start it, or start it again; gives the process when it is ready or has failed."""
        async with self._talking:
            process = self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # files in the user's current folder must not shadow what a worker imports
                "-m",
                "gateway.process.worker",
                self._socket(),
                str(self.number),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._folder)},
                start_new_session=True,  # a Ctrl-C on the terminal is the parent's to pass on
            )
            if self._stopping:  # between the decision to start it and now
                process.terminate()
            if process.stdin is None or process.stdout is None:
                raise AssertionError("both are pipes")
            process.stdin.write(encode_config(0, self._config))
            if await process.stdout.readline() == READY:
                self.ready.set()
            return process

    async def take(self, config: Config) -> str | None:
        """Put this config in force, at the next start if it is not running. Else the reason why it is not."""
        self._config = config
        async with self._talking:
            process = self.process
            if process is None or process.returncode is not None:
                return None
            if process.stdin is None or process.stdout is None:
                raise AssertionError("both are pipes")
            if process.stdin.is_closing():  # it has died, of something else, and will be started again
                return None
            self._orders += 1
            process.stdin.write(encode_config(self._orders, config))
            try:
                async with asyncio.timeout(_TAKE_S):
                    while line := await process.stdout.readline():
                        number, _, answer = line.decode().rstrip("\n").partition(" ")
                        if number == str(self._orders):  # not a late answer to an earlier one
                            return None if answer == TAKEN else answer
            except TimeoutError:
                return f"it has not answered within {_TAKE_S:g} s"
            # Nobody is killed by a config; whoever is starts again with this one.
            return None if await process.wait() == -signal.SIGKILL else "it has died"

    @property
    def pid(self) -> int | None:
        """Of the process, while it is running."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    def end(self, number: signal.Signals) -> None:
        """Send it this signal; one that is just being started ends too."""
        self._stopping = True
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def ask(self, path: str) -> tuple[int, bytes] | None:
        """Status and body of what its admin port answers; None if it does not."""
        connector, timeout = UnixConnector(self._socket()), ClientTimeout(total=_ASK_S)
        try:
            async with (
                ClientSession(connector=connector, timeout=timeout) as session,
                session.get(f"http://worker{path}") as answer,
            ):
                return answer.status, await answer.read()
        except (ClientError, OSError, TimeoutError):
            return None

    def _socket(self) -> str:
        return str(self._folder / f"worker-{self.number}.sock")
