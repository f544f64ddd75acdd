"""`sluice explain`: what the complexity router would make of a prompt, and why."""

from pathlib import Path
from typing import TextIO

from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import CHEAP, STRONG
from gateway.routing.complexity.weights import BadWeights, parse, shipped

_BAD_WEIGHTS = 2


def run(text: str, weights: Path | None, share: float, out: TextIO, err: TextIO) -> int:
    """Print tier, score, percentile and reasons, where `share` is strong; 2 for weights that are bad."""
    try:
        scorer = PromptScorer(shipped() if weights is None else parse(weights.read_bytes()))
    except BadWeights as error:
        print(f"sluice explain: {weights}: {error}", file=err)
        return _BAD_WEIGHTS
    prompt = Prompt(text)
    score = scorer.score(prompt)
    percentile = scorer.percentile(score)
    tier = STRONG if percentile > 100 * (1 - share) else CHEAP
    print(
        f"tier        {tier}, when {share:.0%} of prompts like those of the training may be strong", file=out
    )
    print(f"score       {score:+.4f}, higher than {percentile} % of them", file=out)
    print(f"gain        {scorer.gain(score):+.3f} of the answers, as calibrated in training", file=out)
    for reason in scorer.reasons(prompt):
        print(f"  {reason.added:+.4f}  {reason.name}", file=out)
    return 0
