"""A started `sluice up`, as the tests see it."""

import signal
import subprocess
from dataclasses import dataclass, field

from backend.processes import session_members

STOP_BOUND_S = 60


@dataclass
class RunningUp:
    """A started `sluice up` and what it has printed."""

    process: subprocess.Popen[str]
    port: int
    engine_port: int
    printed: list[str] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        """Where an OpenAI client points to."""
        return f"http://127.0.0.1:{self.port}/v1"

    def interrupt(self) -> int:
        """Press Ctrl-C and wait for the end; gives the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_BOUND_S)

    def leftovers(self) -> list[int]:
        """Processes of the engines and of the gateway that still live."""
        return [pid for session in self.sessions for pid in session_members(session)]
