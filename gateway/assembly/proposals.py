"""Weights proposed from shadow calls: `sluice calibrate` runs by itself when enough of them are recorded.

It never changes what serves: it writes a file beside the shadow file and logs what it would be worth.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

from gateway.routing.cascade.shadow_file import ShadowFile
from gateway.telemetry.logging import logger

AFTER: Final = (400, 800, 1600)
"""Recorded calls of this process after which it calibrates; later on the operator does."""

_CALIBRATE: Final = "import os, sys; os.nice(19); from gateway.cli.main import main; sys.exit(main(sys.argv[1:]))"
_REFUSED: Final = 1


class ProposingFile(ShadowFile):
    """A shadow file that calibrates in a process of the lowest priority, one at a time."""

    def __init__(self, path: str, model: str, in_service: str | None) -> None:
        super().__init__(path)
        self._log = path
        self._model = model
        self._in_service = in_service
        self._recorded = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def proposal(self) -> Path:
        """The file that proposed weights are written to."""
        return Path(f"{self._log}.{self._model.replace(os.sep, '-')}.weights.json")

    async def add(self, data: bytes) -> None:
        """Write one line, and calibrate if it is time."""
        await super().add(data)
        self._recorded += 1
        if self._recorded in AFTER and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._propose())

    async def close(self) -> None:
        """End a calibration under way."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _propose(self) -> None:
        arguments = ["calibrate", self._log, "--install", str(self.proposal)]
        if self._in_service is not None:
            arguments += ["--in-service", self._in_service]
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _CALIBRATE, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )
        except OSError as error:
            logger.warning("cannot calibrate model %s: %s", self._model, error.strerror or error)
            return
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        figures = "; ".join(out.decode(errors="replace").split("\n")[:-1])
        if process.returncode == 0:
            message = "model %s: shadow calls propose weights; to use them set complexity.weights to %s (%s)"
            logger.warning(message, self._model, self.proposal, figures)
        elif process.returncode == _REFUSED and figures:
            logger.info("model %s: the shadow calls propose no other weights (%s)", self._model, figures)
        else:
            last = err.decode(errors="replace").strip().rpartition("\n")[2]
            logger.info("model %s: no weights from shadow calls: %s", self._model, last)
