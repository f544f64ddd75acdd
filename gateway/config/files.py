"""Reads the config file and the `.env` beside it; every failure becomes a readable message."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

MAX_BYTES: Final = 1024 * 1024


class UnreadableError(Exception):
    """A file cannot be read; the message says why and what to do."""


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a file; UnreadableError if it is missing, larger than `most` bytes or not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except FileNotFoundError:
        raise UnreadableError("no such file; name one with --config or SLUICE_CONFIG") from None
    except IsADirectoryError:
        raise UnreadableError("is a directory; name the file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UnreadableError(f"cannot be read: {reason or 'not a path'}") from None
    if len(content) > most:
        raise UnreadableError(f"larger than {most} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from None


def environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the folder's `.env`; those of `environ` win. UnreadableError for a bad file."""
    dotenv = folder / ".env"
    if not dotenv.is_file():
        return dict(environ)
    # Without interpolation, so that a "$" in a secret stays a "$".
    values = dotenv_values(stream=io.StringIO(read_text(dotenv)), interpolate=False)
    return {name: value for name, value in values.items() if value is not None} | dict(environ)
