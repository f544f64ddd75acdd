"""A real redis-server for tests: on loopback and without files."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self


class RedisServer:
    """Starts, pauses, kills and restarts one redis-server; its port stays the same."""

    def __init__(self, folder: Path, *options: str, before: tuple[str, ...] = ()) -> None:
        """`folder` is its working directory; `options` are added to its command line, `before` at its start."""
        self._folder = folder
        self._before = before
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        """Its URL for a config."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        """Starts it and waits until it answers."""
        program = shutil.which("redis-server")
        assert program, "redis-server is not installed"
        address = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        command = [program, *self._before, *address, "--save", "", "--appendonly", "no", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """Ends it with SIGTERM, paused or not; does nothing when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it with SIGKILL; its data is lost."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kills it and starts an empty one."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stops it with SIGSTOP: connections stay open, nothing answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes it after `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def command(self, *words: str) -> bytes:
        """Sends one command on a new connection; returns the raw start of the reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            parts = [b"$%d\r\n%b\r\n" % (len(data), data) for data in (word.encode() for word in words)]
            link.sendall(b"*%d\r\n%b" % (len(parts), b"".join(parts)))
            return link.recv(65536)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "redis-server was not started"
        return self._process

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)
            process.wait(10)

    def _answers(self) -> bool:
        try:
            return self.command("PING").startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
