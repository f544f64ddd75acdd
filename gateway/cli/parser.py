"""What the argument parsers of all commands share."""

import argparse
from typing import NoReturn


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
