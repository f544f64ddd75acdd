"""`sluice key new`: mints a client's key; the config gets only its hash."""

import argparse
import hashlib
import json
import secrets
from typing import TextIO

from gateway.config.scalars import model_name

_RANDOM_BYTES = 24


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the action and its options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=type(parser))
    new = actions.add_parser("new", help="print a new key, and the entry for the config with its hash")
    new.add_argument("--name", required=True, type=_name, help="what metrics and logs show")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print a new key and its entry under `keys`, and return the exit status. Nothing is stored."""
    key, digest = mint()
    print(
        f"key: {key}\n"
        "Give it to its user; it is shown only now and stored nowhere. The entry for the config:\n\n"
        "keys:\n"
        f"  - name: {json.dumps(arguments.name, ensure_ascii=False)}\n"
        f"    key_sha256: {digest}",
        file=out,
    )
    return 0


def mint() -> tuple[str, str]:
    """A new random key, and its SHA-256 in hexadecimal digits."""
    key = f"sk-{secrets.token_urlsafe(_RANDOM_BYTES)}"
    return key, hashlib.sha256(key.encode()).hexdigest()


def _name(text: str) -> str:
    try:
        return model_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
