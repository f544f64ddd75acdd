"""The `sluice` command. Mistakes of usage or config end with status 2 and one clear line each on stderr."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway import __version__

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the process's exit status: 130 after a Ctrl-C that the command does not handle."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(given)
        finally:
            if sys.stdout is not None:  # a process may be started without one
                sys.stdout.flush()  # here, for an error at the interpreter's own flush is a traceback
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough
        _forget_output()
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        with contextlib.suppress(OSError):
            print(f"sluice: {where}{error.strerror or error}", file=sys.stderr)
        _forget_output()
    return 1


def _forget_output() -> None:
    """What could not be written must not be tried again at the interpreter's end."""
    with contextlib.suppress(OSError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _run(given: list[str]) -> int:
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
    from backend.up import LineParser, port_number  # late, so that a Ctrl-C meanwhile is caught

    parser = LineParser(
        prog="sluice", description="The gateway in front of your own LLM engine and your paid upstreams."
    )
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    config = LineParser(add_help=False)
    config.add_argument(
        "--config",
        metavar="FILE",
        help="default: $SLUICE_CONFIG, else ./sluice.yaml; a .env beside it is read",
    )
    serve = commands.add_parser("serve", parents=[config], help="run the gateway")
    serve.add_argument("--host", help="listen on this address instead of server.host")
    serve.add_argument(
        "--port", type=port_number, help="listen on this port instead of server.port; 0 takes a free one"
    )
    serve.add_argument("--workers", type=_positive, metavar="N", help="processes, instead of server.workers")
    check = commands.add_parser("check", parents=[config], help="report every problem of the config")
    check.add_argument("--show", action="store_true", help="print the effective config, secrets masked")
    check.add_argument("--connect", action="store_true", help="ask every upstream for its models")
    commands.add_parser("up", add_help=False, help="run a real engine and the gateway together")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1")
    return int(text)
