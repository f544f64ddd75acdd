"""The options of the router's commands, and their dispatch; importable without numpy."""

import argparse
import io
import os
from pathlib import Path
from typing import Any, Final, TextIO

from gateway.cli.parser import admin_url

_PAGE: Final = "benchmarks/results.md"
_EVERYDAY: Final = "tests/routing/everyday.txt"


def describe(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the three commands."""
    train = commands.add_parser("train-router", help="train and evaluate the complexity router on public tables")
    train.add_argument(
        "--tables",
        metavar="DIR",
        type=Path,
        required=True,
        help="RouteLLM's and FusionBench's tables, see the docs",
    )
    train.add_argument("--out", metavar="FILE", type=Path, help="write the weights instead of evaluating")
    train.add_argument(
        "--everyday",
        metavar="FILE",
        type=Path,
        default=_EVERYDAY,
        help=f"prompts whose scores a new route begins with ({_EVERYDAY})",
    )
    train.add_argument(
        "--report",
        metavar="PAGE",
        type=Path,
        nargs="?",
        const=_PAGE,
        help=f"write the figures into a page ({_PAGE})",
    )
    train.add_argument("--litellm", metavar="PYTHON", help="a Python with litellm, to evaluate it as well")
    calibrate = commands.add_parser("calibrate", help="refit the complexity router on your own log")
    calibrate.add_argument("log", metavar="LOG.jsonl", type=Path, help="prompts with weak_ok and strong_ok")
    calibrate.add_argument(
        "--install", metavar="FILE", type=Path, help="write the weights if they beat those in service"
    )
    calibrate.add_argument(
        "--in-service",
        metavar="FILE",
        type=Path,
        help="the weights that the route uses now (default: the shipped ones)",
    )
    explain = commands.add_parser("explain", help="show why a prompt or a recent request goes where it goes")
    explain.add_argument("prompt", metavar="PROMPT|REQUEST-ID", help="the text of a user's turn, or a request's id")
    explain.add_argument("--admin", metavar="URL", type=admin_url, help="admin port to ask about a request")
    explain.add_argument("--config", metavar="FILE", type=Path, help="take share and weights from this config")
    explain.add_argument("--model", metavar="NAME", help="its model (default: the first with this route)")
    explain.add_argument("--weights", metavar="FILE", type=Path, help="calibrated weights instead of the shipped ones")
    explain.add_argument("--share", type=_share, help="the strong share, 0 to 1 (default: the config's, or 0.3)")


def run(arguments: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Run one of the commands and return its exit status."""
    if arguments.command == "explain":
        from gateway.cli import explain_call
        from gateway.cli.router.explain import run as explain

        text, of_prompts = arguments.prompt, (arguments.model, arguments.weights, arguments.share)
        if explain_call.is_id(text) or (explain_call.may_be_id(text) and of_prompts == (None, None, None)):
            quiet = io.StringIO()
            config = None if arguments.config is None else str(arguments.config)
            status = explain_call.run(text, arguments.admin, config, os.environ, out, quiet)
            if status == 0 or explain_call.is_id(text) or arguments.admin:
                err.write(quiet.getvalue())
                return status
        return explain(arguments, os.environ, out, err)
    try:
        import numpy as _  # noqa: F401
    except ModuleNotFoundError:
        print(f'sluice {arguments.command}: this needs numpy: pip install "sluice-gateway[train]"', file=err)
        return 2
    if arguments.command == "calibrate":
        from gateway.cli.router.calibrate import run as calibrate

        return calibrate(arguments.log, arguments.install, arguments.in_service, out, err)
    from gateway.cli.router.train import run as train

    where = arguments.tables, arguments.out, arguments.everyday, arguments.report
    return train(*where, arguments.litellm, out, err)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError("a share is a number from 0 to 1")
    return share
