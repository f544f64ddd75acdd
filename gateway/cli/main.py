"""The `sluice` command. A usage or config error ends it with status 2 and one line on stderr."""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.cli.parser import LineParser, port_number, positive

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 130 after a Ctrl-C that the command does not handle."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(arguments)
        finally:
            if sys.stdout is not None:  # a process may be started without one
                sys.stdout.flush()  # here: an error in the interpreter's flush at exit prints a traceback
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe
        _forget_output()
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        with contextlib.suppress(OSError):
            print(f"sluice: {where}{error.strerror or error}", file=sys.stderr)
        _forget_output()
    return 1


def _forget_output() -> None:
    """Discard what could not be written, or the interpreter tries again at exit."""
    with contextlib.suppress(OSError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _run(argv: list[str]) -> int:
    if argv[:1] == ["up"]:  # the engine's package parses its options
        from backend.up import main as up

        return up(argv[1:])
    parser = _parser()
    if not argv:
        parser.print_help()
        return 0
    arguments = parser.parse_args(argv)
    if arguments.command == "bench":
        from gateway.cli.bench.run import run as bench

        return bench(arguments, os.environ, out=sys.stdout, err=sys.stderr)
    if arguments.command == "batch":
        from gateway.cli.batch.run import run as batch

        return batch(arguments, os.environ, out=sys.stdout, err=sys.stderr)
    if arguments.command == "import-litellm":
        from gateway.cli.import_litellm.run import run as import_litellm

        return import_litellm(arguments.file, arguments.out, out=sys.stdout, err=sys.stderr, keys_file=arguments.keys)
    if arguments.command == "init":
        from gateway.cli.init import run as init

        ask = None if arguments.yes or not sys.stdin or not sys.stdin.isatty() else input
        return init(arguments, os.environ, out=sys.stdout, err=sys.stderr, ask=ask)
    if arguments.command == "key":
        from gateway.cli.key import run as key

        return key(arguments, out=sys.stdout)
    if arguments.command in ("train-router", "calibrate", "explain"):
        from gateway.cli.router.options import run as router

        return router(arguments, out=sys.stdout, err=sys.stderr)
    if arguments.config and arguments.file and Path(arguments.config) != Path(arguments.file):
        parser.error(f"two configs: {arguments.file} and --config {arguments.config}; give one")
    arguments.config = arguments.config or arguments.file
    path = Path(arguments.config or os.environ.get("SLUICE_CONFIG") or "sluice.yaml")
    if arguments.command == "check":
        from gateway.cli.check import print_schema
        from gateway.cli.check import run as check

        if arguments.schema:
            return print_schema(sys.stdout)
        shown, connect = arguments.show, arguments.connect
        return check(path, shown, connect, out=sys.stdout, err=sys.stderr, environ=os.environ)
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
    parser = LineParser(
        prog="sluice", description="The gateway in front of your own LLM engine and your paid upstreams."
    )
    parser.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    config = LineParser(add_help=False)
    config.add_argument("file", nargs="?", metavar="FILE", help="the config, as with --config")
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
    serve.add_argument("--workers", type=positive, metavar="N", help="processes, instead of server.workers")
    check = commands.add_parser("check", parents=[config], help="report every problem of the config")
    check.add_argument("--show", action="store_true", help="print the effective config, secrets masked")
    check.add_argument(
        "--connect",
        action="store_true",
        help="ask every upstream for its models, every identity provider for its keys, and Redis",
    )
    check.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON Schema of the config, for editors, and check nothing",
    )
    prices = commands.add_parser("prices", parents=[config], help="list what each model costs")
    prices.add_argument("--json", action="store_true", help="print JSON")
    _tools(commands, config)
    commands.add_parser("up", add_help=False, help="run a real engine and the gateway together")
    return parser


def _tools(commands: "argparse._SubParsersAction[Any]", config: argparse.ArgumentParser) -> None:
    from gateway.cli.batch.options import describe as describe_batch
    from gateway.cli.bench.options import describe as describe_bench
    from gateway.cli.init import describe as describe_init
    from gateway.cli.key import describe as describe_key
    from gateway.cli.report.run import describe as describe_report
    from gateway.cli.router.options import describe as describe_router
    from gateway.cli.top.run import describe as describe_top

    describe_batch(commands)
    describe_router(commands)
    describe_report(commands.add_parser("report", parents=[config], help="report what was saved, and by what"))
    describe_top(commands.add_parser("top", parents=[config], help="watch a running gateway"))
    describe_bench(commands.add_parser("bench", help="load an endpoint and measure it"))
    describe_init(commands.add_parser("init", help="write a config, and find engines on this machine"))
    describe_key(commands.add_parser("key", help="mint a client's key"))
    litellm = commands.add_parser("import-litellm", help="convert a LiteLLM config")
    litellm.add_argument("file", metavar="CONFIG", help="LiteLLM's config.yaml")
    litellm.add_argument("--keys", metavar="FILE", help="virtual keys exported as CSV, see the docs")
    litellm.add_argument("--out", metavar="FILE", help="a new file to write, instead of standard output")
