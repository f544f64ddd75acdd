"""Scores prompts with LiteLLM's complexity router. A standalone script for a Python with litellm installed.

Reads a JSON list of prompts and writes the output of its two local classifiers: `first` is the heuristic's
score, `simple` whether its tier is SIMPLE, `second` heuristic_v2's probability that the first tier fails.
"""

import json
import sys
import warnings
from importlib import import_module
from importlib.metadata import version


def main() -> None:
    """Read prompts from standard input, and write scores to standard output."""
    warnings.simplefilter("ignore")
    router = import_module("litellm").Router(model_list=[])
    module = import_module("litellm.router_strategy.complexity_router.complexity_router")
    prompts = json.load(sys.stdin)
    heuristic = module.ComplexityRouter("auto", router, {"classifier_type": "heuristic"})
    classified = [heuristic.classify(prompt) for prompt in prompts]
    artifact = module.resolve_tier_artifact(module.ComplexityRouterConfig().heuristic_v2_artifact)
    predictor = module.TierSuccessPredictor(artifact)
    predictions = [predictor.predict(prompt, module.classify_prompt(prompt)) for prompt in prompts]
    scores = {
        "version": version("litellm"),
        "first": [score for _, score, _ in classified],
        "simple": [tier.value == "SIMPLE" for tier, _, _ in classified],
        "second": [1.0 - prediction.probabilities[1] for prediction in predictions],
    }
    json.dump(scores, sys.stdout)


if __name__ == "__main__":
    main()
