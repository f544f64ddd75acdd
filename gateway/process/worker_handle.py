"""A worker as its parent sees it: a process that receives configs through a pipe and serves an admin socket.

Secrets go through the pipe, not through arguments or the environment. The pipe stays open; when the parent
dies, it closes and the worker drains.
"""

import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector
from yarl import URL

from gateway.config.model import Config
from gateway.process.lifecycle import APPLIED, READY, encode_config

_ADMIN_TIMEOUT_S = 1.0
_APPLY_TIMEOUT_S = 30.0


class WorkerProcess:
    """Worker `number` (from 0). `folder` has its socket, `series_folder` its series."""

    def __init__(self, number: int, folder: Path, series_folder: Path, config: Config) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()  # set for good once it has been ready
        self._folder = folder
        self._series_folder = series_folder
        self._starts = 0
        self._config = config
        self._sent = 0
        self._exchange = asyncio.Lock()
        self._stopping = False

    async def start(self) -> asyncio.subprocess.Process:
        """Start the process, also after it has died; returns when it is ready or has failed."""
        async with self._exchange:
            self._starts += 1
            process = self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # files in the current folder must not shadow what a worker imports
                "-m",
                "gateway.process.worker",
                self._socket(),
                str(self.number),
                str(self.series_path),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # the parent passes on a Ctrl-C of the terminal
            )
            if self._stopping:  # since the decision to start it
                process.terminate()
            if process.stdin is None or process.stdout is None:
                raise AssertionError("both are pipes")
            process.stdin.write(encode_config(0, self._config))
            if await process.stdout.readline() == READY:
                self.ready.set()
            return process

    async def apply(self, config: Config) -> str | None:
        """Apply this config now, or at the next start. Returns None, or the reason why it was not applied."""
        self._config = config
        async with self._exchange:
            process = self.process
            if process is None or process.returncode is not None:
                return None
            if process.stdin is None or process.stdout is None:
                raise AssertionError("both are pipes")
            if process.stdin.is_closing():  # it has died for another reason and will be restarted
                return None
            self._sent += 1
            process.stdin.write(encode_config(self._sent, config))
            try:
                async with asyncio.timeout(_APPLY_TIMEOUT_S):
                    while line := await process.stdout.readline():
                        number, _, answer = line.decode().rstrip("\n").partition(" ")
                        if number == str(self._sent):  # not a late reply to an earlier config
                            return None if answer == APPLIED else answer
            except TimeoutError:
                return f"it did not answer within {_APPLY_TIMEOUT_S:g} s"
            # A config kills no worker. One killed by SIGKILL restarts with this config.
            return None if await process.wait() == -signal.SIGKILL else "it has died"

    @property
    def series_path(self) -> Path:
        """The file of the series of this process; one that is started later has another."""
        return self._series_folder / f"worker-{self.number}-{self._starts}.series"

    @property
    def pid(self) -> int | None:
        """The id of the process while it runs."""
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    def end(self, number: signal.Signals) -> None:
        """Send this signal, also to a process that is just being started."""
        self._stopping = True
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def ask(self, path: str, method: str = "GET") -> tuple[int, bytes] | None:
        """Status and body of a request to its admin socket; None without an answer."""
        connector, timeout = UnixConnector(self._socket()), ClientTimeout(total=_ADMIN_TIMEOUT_S)
        try:
            async with (
                ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, URL(f"http://worker{path}", encoded=True)) as answer,
            ):
                return answer.status, await answer.read()
        except (ClientError, OSError, TimeoutError):
            return None

    def _socket(self) -> str:
        return str(self._folder / f"worker-{self.number}.sock")
