"""The options of `sluice top`."""

import argparse
from urllib.parse import urlsplit

from gateway.units import parse_duration


def describe(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument(
        "--admin", type=_address, metavar="URL", help="the admin port, default: as the config says"
    )
    parser.add_argument("--interval", type=_interval, default=1.0, help="time between two looks (1s)")
    parser.add_argument("--once", action="store_true", help="print one plain screen and end")


def _address(text: str) -> str:
    parts = urlsplit(text)
    wrong = parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment
    if wrong or not parts.hostname or parts.port == 0:  # a port of no use is a ValueError
        raise argparse.ArgumentTypeError("give an address such as http://127.0.0.1:9464")
    return text


def _interval(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("give a time from 100ms to 1h")
    return seconds
