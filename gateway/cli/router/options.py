"""The router's commands: what they take, and who runs them. Known without numpy."""

import argparse
from pathlib import Path
from typing import Any, Final, TextIO

_PAGE: Final = "benchmarks/results.md"


def describe(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the three commands."""
    train = commands.add_parser(
        "train-router", help="train and measure the complexity router on public tables"
    )
    train.add_argument(
        "--tables", metavar="DIR", type=Path, required=True, help="RouteLLM's tables, see the docs"
    )
    train.add_argument("--out", metavar="FILE", type=Path, help="write weights, instead of measuring")
    train.add_argument(
        "--report", metavar="PAGE", type=Path, nargs="?", const=_PAGE, help=f"figures into a page ({_PAGE})"
    )
    train.add_argument("--litellm", metavar="PYTHON", help="a Python that has litellm, to measure it as well")
    calibrate = commands.add_parser("calibrate", help="refit the complexity router on your own log")
    calibrate.add_argument("log", metavar="LOG.jsonl", type=Path, help="prompts with weak_ok and strong_ok")
    calibrate.add_argument(
        "--install", metavar="FILE", type=Path, help="write the weights if they beat length"
    )
    explain = commands.add_parser(
        "explain", help="how hard the complexity router takes a prompt to be, and why"
    )
    explain.add_argument("prompt", help="the text of a user's turn")
    explain.add_argument(
        "--weights", metavar="FILE", type=Path, help="calibrated weights, not the shipped ones"
    )
    explain.add_argument("--share", type=_share, default=0.5, help="the strong share, 0 to 1 (default 0.5)")


def run(arguments: argparse.Namespace, out: TextIO, err: TextIO) -> int:
    """Run one of the commands; its exit status."""
    if arguments.command == "explain":
        from gateway.cli.router.explain import run as explain

        return explain(arguments.prompt, arguments.weights, arguments.share, out, err)
    try:
        import numpy as _  # noqa: F401
    except ModuleNotFoundError:
        print(f'sluice {arguments.command}: this needs numpy: pip install "sluice-gateway[train]"', file=err)
        return 2
    if arguments.command == "calibrate":
        from gateway.cli.router.calibrate import run as calibrate

        return calibrate(arguments.log, arguments.install, out, err)
    from gateway.cli.router.train import run as train

    return train(arguments.tables, arguments.out, arguments.report, arguments.litellm, out, err)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError("a share is a number from 0 to 1")
    return share
