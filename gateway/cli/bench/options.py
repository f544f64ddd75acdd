"""The options of `sluice bench`, and the load plan made of them."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import SystemRandom
from typing import Literal, get_args
from urllib.parse import urlsplit

from gateway.core.units import Secret, parse_duration

Endpoint = Literal["chat", "completions", "embeddings"]
Arrivals = Literal["poisson", "constant"]

PATHS: dict[str, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "embeddings": "/embeddings",
}


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint: its base URL, the name of the model there, and the key."""

    url: str
    model: str
    key: Secret | None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load, put on each target.

    With a `rate` (calls a second) calls start at random or constant intervals, whether or not others have
    ended; without one, `concurrency` calls are open, each followed by the next. `requests` or `duration`
    (seconds) bounds the calls for each target.
    """

    targets: tuple[Target, ...]
    endpoint: Endpoint
    stream: bool
    concurrency: int
    rate: float | None
    arrivals: Arrivals
    requests: int | None
    duration: float | None
    prompt_tokens: tuple[int, int]
    max_tokens: int
    timeout: float
    seed: int


_REQUESTS = 100


def describe(parser: argparse.ArgumentParser) -> None:
    """Adds the options to `parser`."""
    add = parser.add_argument
    add(
        "url",
        metavar="URL",
        nargs="+",
        type=_url,
        help="base URL, as OpenAI's SDK takes it; two are compared",
    )
    add(
        "--model",
        required=True,
        action="append",
        help="the model to ask for; twice where the URLs' names differ",
    )
    add(
        "--key",
        action="append",
        help="the API key, default: $OPENAI_API_KEY; twice where the URLs' keys differ",
    )
    add("--endpoint", choices=PATHS, default="chat", help="what is called (chat)")
    add("--stream", action=argparse.BooleanOptionalAction, default=True, help="ask for streams (the default)")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--concurrency", type=_whole(1), default=8, metavar="N", help="calls at once (8)")
    pace.add_argument(
        "--rate", type=_rate, metavar="R", help="calls a second, started whether or not others have ended"
    )
    add(
        "--arrivals",
        choices=get_args(Arrivals),
        help="with --rate: at random times (poisson, the default) or at constant intervals",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--requests", type=_whole(1), metavar="N", help=f"calls for each URL ({_REQUESTS})")
    end.add_argument("--duration", type=_time, metavar="TIME", help="for so long, such as 30s, for each URL")
    add(
        "--prompt-tokens",
        type=_span,
        default=(128, 128),
        metavar="N[,M]",
        help="about so many words, or N to M (128)",
    )
    add("--max-tokens", type=_whole(1), default=64, metavar="N", help="longest answer (64)")
    add("--timeout", type=_time, default=600.0, metavar="TIME", help="longest call (600s)")
    add("--seed", type=_whole(0), metavar="N", help="the same prompts and arrivals again")
    add("--json", action="store_true", help="print the figures as JSON")


def plan(options: argparse.Namespace, environ: Mapping[str, str]) -> LoadPlan:
    """The plan. Raises ValueError, whose text says what to change, for options that conflict."""
    if len(options.url) > 2:
        raise ValueError("give one URL, or two to compare")
    if options.arrivals is not None and options.rate is None:
        raise ValueError("--arrivals needs --rate")
    keys = options.key or [environ.get("OPENAI_API_KEY")]
    if len(options.model) > len(options.url) or len(keys) > len(options.url):
        raise ValueError("give one --model and one --key for all URLs, or one for each")
    return LoadPlan(
        tuple(
            # The last one applies to all further URLs.
            Target(url, options.model[min(i, len(options.model) - 1)], _secret(keys[min(i, len(keys) - 1)]))
            for i, url in enumerate(options.url)
        ),
        options.endpoint,
        options.stream and options.endpoint != "embeddings",
        options.concurrency,
        options.rate,
        options.arrivals or "poisson",
        options.requests or (_REQUESTS if options.duration is None else None),
        options.duration,
        options.prompt_tokens,
        options.max_tokens,
        options.timeout,
        # Random, so that no cache holds answers to the prompts of an earlier run.
        options.seed if options.seed is not None else SystemRandom().getrandbits(32),
    )


def _secret(key: str | None) -> Secret | None:
    return Secret(key) if key else None


def _url(text: str) -> str:
    parts = urlsplit(text)
    wrong = parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment
    if wrong or not parts.hostname or parts.port == 0:  # `port` raises ValueError if it is out of range
        raise argparse.ArgumentTypeError("give a base URL such as http://127.0.0.1:8080/v1")
    base = text.rstrip("/")
    for path in PATHS.values():
        base = base.removesuffix(path)
    return base if urlsplit(base).path else f"{base}/v1"


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= 10_000_000:
            raise argparse.ArgumentTypeError(f"give a whole number from {least}")
        return int(text)

    return parse


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.001 <= rate <= 100_000:
        raise argparse.ArgumentTypeError("give calls a second, such as 20 or 0.5")
    return rate


def _time(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError("give a time above 0 and up to 24h")
    return seconds


def _span(text: str) -> tuple[int, int]:
    low, _, high = text.partition(",")
    parse = _whole(1)
    span = parse(low), parse(high or low)
    if span[0] > span[1]:
        raise argparse.ArgumentTypeError("give the smaller number first, such as 128,1024")
    return span
