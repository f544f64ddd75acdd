"""Shows that something long is still going on."""

import re
import shutil
import time
from pathlib import Path
from typing import TextIO

_PLAIN_EVERY_S = 10.0
_TAIL_BYTES = 16384
# What vLLM and its kin put before the words: "(EngineCore pid=7) INFO 11-29 16:05:00 [cpu_worker.py:123] ".
_PREFIX = re.compile(
    r"^(\(\w+ pid=\d+\)\s*)?((DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+)?"
    r"(\d\d-\d\d [\d:]+ )?(\[[\w./]+:\d+\]\s*)?"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What pip, uv, transformers and vLLM say when they begin something that takes long.
_STEP = re.compile(
    r"(Building|Capturing|Collecting|Compiling|Converting|Downloading|Initializing|Installing|Loading"
    r"|Preparing|Profiling|Starting|Waiting|Warming) "
)


def log_lines(log: Path) -> list[str]:
    """The last lines of a log that hold a word, without prefixes and colours; oldest first."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A bar redraws its line with a carriage return; only its last state counts.
    shown = (_ESCAPES.sub("", line.rstrip("\r").rsplit("\r", 1)[-1]).strip() for line in text.split("\n"))
    return [words for line in shown if re.search(r"[A-Za-z]{3}", words := _PREFIX.sub("", line))]


def log_step(log: Path) -> str:
    """The last line of a log that tells what is being done; empty where none does."""
    step = next((line for line in reversed(log_lines(log)) if _STEP.match(line)), "")
    return step.partition(" with config: ")[0]  # vLLM lists all of it there


class Progress:
    """One line that updates on a terminal; elsewhere a line at the start and one each 10 s."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._label = ""
        self._began = self._said = 0.0

    def begin(self, label: str) -> None:
        """Start a step, which `label` names."""
        self._label = label
        self._began = self._said = time.monotonic()
        if not self._terminal:
            self._print(f"{label} ...")

    def update(self, detail: str) -> None:
        """Show the step's elapsed seconds and `detail`; call it as often as wanted."""
        now = time.monotonic()
        line = f"{self._label} ... {now - self._began:.0f} s  {detail}".rstrip()
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r\x1b[K{line[:width]}")
            self._out.flush()
        elif now - self._said >= _PLAIN_EVERY_S:
            self._said = now
            self._print(line[:200])

    def done(self) -> None:
        """End the step and leave its time to read."""
        self.clear()
        self._print(f"{self._label}: done in {time.monotonic() - self._began:.0f} s")

    def clear(self) -> None:
        """Take the updating line away, before something else is printed."""
        if self._terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)
