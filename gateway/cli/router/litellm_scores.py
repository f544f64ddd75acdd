"""Scores prompts with LiteLLM's complexity router. Runs alone, under a Python that has litellm installed.

Reads a JSON list of prompts and writes what its two local classifiers make of them: `first` the heuristic's
score, `simple` whether its tier is SIMPLE, `second` what heuristic_v2 leaves of the first tier's success.
"""

import json
import sys
import warnings
from importlib import import_module
from importlib.metadata import version


def main() -> None:
    """From standard input to standard output."""
    warnings.simplefilter("ignore")
    nothing = import_module("litellm").Router(model_list=[])
    theirs = import_module("litellm.router_strategy.complexity_router.complexity_router")
    given = json.load(sys.stdin)
    heuristic = theirs.ComplexityRouter("auto", nothing, {"classifier_type": "heuristic"})
    decided = [heuristic.classify(prompt) for prompt in given]
    artifact = theirs.resolve_tier_artifact(theirs.ComplexityRouterConfig().heuristic_v2_artifact)
    predictor = theirs.TierSuccessPredictor(artifact)
    second = [predictor.predict(prompt, theirs.classify_prompt(prompt)).probabilities[1] for prompt in given]
    found = {
        "version": version("litellm"),
        "first": [score for _, score, _ in decided],
        "simple": [tier.value == "SIMPLE" for tier, _, _ in decided],
        "second": [1.0 - easy for easy in second],
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
