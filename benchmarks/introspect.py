"""`python -m benchmarks.introspect FILE ...`: the `sluice` command with those arguments, which reports its objects.

On SIGUSR2 it collects garbage and writes the number of its asyncio tasks and of Python's allocated memory blocks
into FILE: figures that a proxy need not publish, measured without changing the gateway.
"""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks.arguments import arguments
from gateway.cli.main import main


def look(file: Path) -> None:
    """Write the figures atomically."""
    gc.collect()
    tasks = len(asyncio.all_tasks())  # Python runs a signal's handler in the main thread, within the loop
    new = file.with_suffix(".new")
    new.write_text(f"{tasks} {sys.getallocatedblocks()}")
    os.replace(new, file)


if __name__ == "__main__":
    found, command = arguments(__doc__, file=Path, command=list)

    def asked(_: int, __: FrameType | None) -> None:
        look(found)

    signal.signal(signal.SIGUSR2, asked)
    sys.exit(main(command))
