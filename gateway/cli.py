"""The `sluice` command. Mistakes of usage or config end with status 2 and one clear line each on stderr."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the process's exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["up"]:  # its options are the engine's business
        from backend.up import main as up

        return up(given[1:])
    arguments = _parser().parse_args(given)
    path = Path(arguments.config or os.environ.get("SLUICE_CONFIG") or "sluice.yaml")
    if arguments.command == "check":
        from gateway.check import run as check

        return check(
            path, arguments.show, arguments.connect, out=sys.stdout, err=sys.stderr, environ=os.environ
        )
    from gateway.run import serve

    return serve(path, arguments.host, arguments.port, arguments.workers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice", description="The gateway in front of your own LLM engine and your paid upstreams."
    )
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    config = argparse.ArgumentParser(add_help=False)
    config.add_argument(
        "--config",
        metavar="FILE",
        help="default: $SLUICE_CONFIG, else ./sluice.yaml; a .env beside it is read",
    )
    serve = commands.add_parser("serve", parents=[config], help="run the gateway")
    serve.add_argument("--host", help="listen on this address instead of server.host")
    serve.add_argument(
        "--port", type=_port, help="listen on this port instead of server.port; 0 takes a free one"
    )
    serve.add_argument("--workers", type=_positive, metavar="N", help="processes, instead of server.workers")
    check = commands.add_parser("check", parents=[config], help="report every problem of the config")
    check.add_argument("--show", action="store_true", help="print the effective config, secrets masked")
    check.add_argument("--connect", action="store_true", help="ask every upstream for its models")
    commands.add_parser("up", add_help=False, help="run a real engine and the gateway together")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1")
    return int(text)
