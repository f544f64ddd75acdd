"""What the argument parsers of all commands share."""

import argparse
from typing import NoReturn
from urllib.parse import urlsplit


class LineParser(argparse.ArgumentParser):
    """An ArgumentParser that reports a mistake in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.splitlines())}\n")


def port_number(text: str) -> int:
    """The type of an option that names a port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1")
    return int(text)


def admin_url(text: str) -> str:
    """The type of an option that names a running gateway's admin port."""
    parts = urlsplit(text)
    malformed = parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment
    if malformed or not parts.hostname or parts.port == 0:  # parts.port raises ValueError for a bad port
        raise argparse.ArgumentTypeError("give an address such as http://127.0.0.1:9464")
    return text
