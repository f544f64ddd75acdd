"""`sluice explain`: the tier that the complexity router would choose for a prompt, and why."""

import argparse
import os
from collections.abc import Iterator, Mapping
from math import log
from pathlib import Path
from typing import Final, TextIO

from gateway.config.complexity import ComplexityConfig
from gateway.config.load import load
from gateway.routing.complexity.features import NAMES, Prompt, read
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import CHEAP, STRONG
from gateway.routing.complexity.weights import BadWeights, parse, shipped

_BAD = 2
_DEFAULT_FILE: Final = "sluice.yaml"
_ONE: Final = {
    "analysis words": "an analysis word",
    "conditions": "a condition",
    "quantities": "a quantity",
    "fact questions": "a question for a fact",
}
_SMALL: Final = 0.002
_NOT_WORDS: Final = frozenset({"length", "numbers", "turns", "context", "tools", "output cap", "schema"})


class _NoRoute(Exception):
    """The config has no such route; the message says which."""


def run(arguments: argparse.Namespace, environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Print tier and reason in one sentence, then the numbers; returns 2 for bad weights or configs."""
    path = arguments.weights
    try:
        route = _route(arguments, environ)
        path = path or (Path(route.weights) if route.weights else None)
        scorer = PromptScorer(shipped() if path is None else parse(path.read_bytes()))
    except (BadWeights, _NoRoute) as error:
        where = f"{path}: " if isinstance(error, BadWeights) else ""
        print(f"sluice explain: {where}{error}", file=err)
        return _BAD
    share = route.strong_share if arguments.share is None else arguments.share
    prompt = Prompt(arguments.prompt)
    score = scorer.score(prompt)
    percentile = scorer.percentile(score)
    tier = STRONG if percentile > 100 * (1 - share) else CHEAP
    crowd = "everyday prompts" if path is None else "the prompts behind its weights"
    print(f"{tier}: {', '.join(_because(scorer, prompt))}: harder than {percentile} % of {crowd}", file=out)
    print(f"share       the hardest {share:.0%} of a route's calls are strong", file=out)
    print(f"score       {score:+.4f}", file=out)
    print(f"gain        {scorer.gain(score):+.3f} of the answers, as calibrated in training", file=out)
    for reason in scorer.reasons(prompt):
        print(f"  {reason.added:+.4f}  {reason.name}", file=out)
    return 0


def _route(arguments: argparse.Namespace, environ: Mapping[str, str]) -> ComplexityConfig:
    """Return the section of the model whose route it is; without a config the default one."""
    named = arguments.config or environ.get("SLUICE_CONFIG")
    if named is None and arguments.model is None and not os.path.exists(_DEFAULT_FILE):
        return ComplexityConfig()
    path = Path(named or _DEFAULT_FILE)
    loaded = load(path, environ)
    if loaded.config is None:
        raise _NoRoute(f"{path} is no valid config: `sluice check` lists its problems")
    routes = {name: one.complexity for name, one in loaded.config.models.items() if one.route == "complexity"}
    if arguments.model is None:
        return next(iter(routes.values()), ComplexityConfig())
    if arguments.model not in routes:
        raise _NoRoute(f"{path} has no model {arguments.model!r} with `route: complexity`")
    return routes[arguments.model]


def _because(scorer: PromptScorer, prompt: Prompt) -> Iterator[str]:
    """Yield what is in the prompt, the weightiest first, and its length."""
    values = dict(zip(NAMES, read(prompt).dense, strict=True))
    effects = {name: abs(weight * values[name]) for name, weight in scorer.weights.dense.items()}
    named = [name for name in NAMES if name not in _NOT_WORDS and effects[name] > _SMALL]
    for name in sorted(named, key=effects.__getitem__, reverse=True):
        several = values[name] > log(2) + _SMALL
        yield name if several else _ONE.get(name, f"a {name.removesuffix('s')}")
    yield f"{sum(map(str.isalnum, prompt.text))} letters"
