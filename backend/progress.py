"""The progress of long steps: what their logs say, and how long they have taken."""

import re
import time
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.status import Status
from rich.text import Text

_PLAIN_EVERY_S = 10.0
_TAIL_BYTES = 16384
# The prefixes of vLLM and similar engines: "(EngineCore pid=7) INFO 11-29 16:05:00 [cpu_worker.py:123] ".
_PREFIX = re.compile(
    r"^(\(\w+ pid=\d+\)\s*)?((DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+)?"
    r"(\d\d-\d\d [\d:]+ )?(\[[\w./]+:\d+\]\s*)?"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# How pip, uv, transformers and vLLM announce a step that takes long.
_STEP = re.compile(
    r"(Building|Capturing|Collecting|Compiling|Converting|Downloading|Initializing|Installing|Loading"
    r"|Preparing|Profiling|Starting|Waiting|Warming) "
)


def log_lines(log: Path) -> list[str]:
    """The last lines of a log that contain a word, without prefixes and colours; oldest first."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar redraws its line after a carriage return; only its last state counts.
    shown = (_ESCAPES.sub("", line.rstrip("\r").rsplit("\r", 1)[-1]).strip() for line in text.split("\n"))
    return [words for line in shown if re.search(r"[A-Za-z]{3}", words := _PREFIX.sub("", line))]


def log_step(log: Path) -> str:
    """The last line of a log that announces a step; empty if there is none."""
    step = next((line for line in reversed(log_lines(log)) if _STEP.match(line)), "")
    return step.partition(" with config: ")[0]  # vLLM lists its whole config there


class Progress:
    """What is going on: a spinner on a terminal, elsewhere a line at the start and one every 10 s."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False, markup=False, soft_wrap=True)
        self._terminal = out.isatty() and not self._console.is_dumb_terminal
        self._status: Status | None = None
        self._label = ""
        self._began = self._printed = 0.0

    def begin(self, label: str) -> None:
        """Start a step named `label`."""
        self._label = label
        self._began = self._printed = time.monotonic()
        if self._terminal:
            self._status = self._console.status(self._line(""))
            self._status.start()
        else:
            self._console.print(f"{label} ...")

    def update(self, detail: str) -> None:
        """Show the step's elapsed seconds and `detail`; may be called at any rate."""
        if self._status is not None:
            self._status.update(self._line(detail))
        elif not self._terminal and time.monotonic() - self._printed >= _PLAIN_EVERY_S:
            self._printed = time.monotonic()
            self._console.print(self._line(detail).plain[:200])

    def done(self) -> None:
        """End the step and print its duration."""
        self.clear()
        self._console.print(f"{self._label}: done in {time.monotonic() - self._began:.0f} s")

    def clear(self) -> None:
        """Remove the spinner, so that other things can be printed."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _line(self, detail: str) -> Text:
        seconds = time.monotonic() - self._began
        text = f"{self._label} ... {seconds:.0f} s  {detail}".rstrip()
        return Text(text, no_wrap=True, overflow="ellipsis")
