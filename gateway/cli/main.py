"""The `sluice` command. Mistakes of usage or config end with status 2 and one clear line each on stderr."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway import __version__

_INTERRUPTED = 130
_OTHERS_COUNTERS = ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
"""Where others keep their counters, and prometheus-client would keep ours; workers get a folder of ours."""


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
    for name in _OTHERS_COUNTERS:
        os.environ.pop(name, None)
    if given[:1] == ["up"]:  # its options are the engine's business
        from backend.up import main as up

        return up(given[1:])
    arguments = _parser().parse_args(given)
    if arguments.command == "bench":
        from gateway.cli.bench.run import run as bench

        return bench(arguments, os.environ, out=sys.stdout, err=sys.stderr)
    if arguments.command == "import-litellm":
        from gateway.cli.import_litellm.run import run as import_litellm

        return import_litellm(arguments.file, arguments.out, out=sys.stdout, err=sys.stderr)
    if arguments.command in ("train-router", "calibrate", "explain"):
        from gateway.cli.router.options import run as router

        return router(arguments, out=sys.stdout, err=sys.stderr)
    path = Path(arguments.config or os.environ.get("SLUICE_CONFIG") or "sluice.yaml")
    if arguments.command == "check":
        from gateway.cli.check import run as check

        return check(
            path, arguments.show, arguments.connect, out=sys.stdout, err=sys.stderr, environ=os.environ
        )
    if arguments.command == "prices":
        from gateway.cli.prices import run as prices

        return prices(path, arguments.json, out=sys.stdout, err=sys.stderr, environ=os.environ)
    if arguments.command == "report":
        from gateway.cli.report.run import run as report

        return report(arguments, path, os.environ, out=sys.stdout, err=sys.stderr)
    if arguments.command == "top":
        from gateway.cli.top.run import run as top

        return top(arguments, path, os.environ, out=sys.stdout, err=sys.stderr)
    from gateway.cli.serve import serve

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
    prices = commands.add_parser("prices", parents=[config], help="list what each model costs")
    prices.add_argument("--json", action="store_true", help="for machines")
    _tools(commands, config)
    commands.add_parser("up", add_help=False, help="run a real engine and the gateway together")
    return parser


def _tools(commands: "argparse._SubParsersAction[Any]", config: argparse.ArgumentParser) -> None:
    from gateway.cli.bench.options import describe as describe_bench
    from gateway.cli.report.run import describe as describe_report
    from gateway.cli.router.options import describe as describe_router
    from gateway.cli.top.run import describe as describe_top

    describe_router(commands)
    describe_report(commands.add_parser("report", parents=[config], help="tell what was saved, and by what"))
    describe_top(commands.add_parser("top", parents=[config], help="watch a running gateway"))
    describe_bench(commands.add_parser("bench", help="put a load on an endpoint and measure it"))
    litellm = commands.add_parser("import-litellm", help="turn LiteLLM's config into one of this gateway")
    litellm.add_argument("file", metavar="CONFIG", help="LiteLLM's config.yaml")
    litellm.add_argument("--out", metavar="FILE", help="a new file to write, instead of standard output")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("give a whole number from 1")
    return int(text)
