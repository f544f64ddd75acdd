"""Prints messages for people: one line each, wrapped at words on a terminal."""

import shutil
import textwrap
from typing import TextIO


def say(message: object, file: TextIO) -> None:
    """Print a message. On a terminal no word is cut at its edge; further lines are indented by two."""
    text = str(message)
    if file.isatty():
        width = max(20, shutil.get_terminal_size().columns)
        text = textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(text, file=file)
