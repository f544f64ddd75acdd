"""The options of `sluice batch`."""

import argparse
from pathlib import Path
from typing import Any, Final

from gateway.cli.parser import LineParser

DEFAULT_URL: Final = "http://127.0.0.1:8080/v1"


def describe(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command and its own commands."""
    parser = commands.add_parser("batch", help="submit files of requests that can wait, and fetch their results")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=LineParser)
    where = LineParser(add_help=False)
    where.add_argument("--url", default=DEFAULT_URL, help=f"the gateway's base URL ({DEFAULT_URL})")
    where.add_argument("--key", help="the API key, default: $OPENAI_API_KEY")
    what = LineParser(add_help=False)
    what.add_argument("--endpoint", metavar="PATH", help="default: the url of the first line")
    what.add_argument("--window", default="24h", help="when it must be done (24h)")
    one = LineParser(add_help=False)
    one.add_argument("id", metavar="ID", help="the batch")
    submit = actions.add_parser("submit", parents=[where, what], help="upload a file and start its batch")
    submit.add_argument("file", type=Path, metavar="FILE", help="one request a line")
    submit.add_argument("--wait", action="store_true", help="show its progress until it has ended")
    status = actions.add_parser("status", parents=[where], help="show a batch, or the latest ones")
    status.add_argument("id", nargs="?", metavar="ID", help="default: the latest batches")
    status.add_argument("--wait", action="store_true", help="show its progress until it has ended")
    result = actions.add_parser("result", parents=[where, one], help="fetch the output of a batch that has ended")
    result.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    result.add_argument("--errors", action="store_true", help="fetch the error file instead")
    actions.add_parser("cancel", parents=[where, one], help="cancel a batch")
    whole = actions.add_parser("run", parents=[where, what], help="submit a file, wait, and fetch the results")
    whole.add_argument("file", type=Path, metavar="IN", help="one request a line")
    whole.add_argument("out", type=Path, metavar="OUT", help="the results; failed lines go to OUT.errors")
