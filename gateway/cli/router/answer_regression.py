"""Asking the strong model after a look at the cheap one's answer: a ridge of the gain on what it shows."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gateway.cli.router.dataset import LabelledPrompt
from gateway.routing.cascade.answer_checks import look
from gateway.routing.complexity.scorer import PromptScorer

_RIDGE = 10.0
_CALM = 1e-9


def learn(
    rows: Sequence[LabelledPrompt], scorer: PromptScorer
) -> Callable[[Sequence[LabelledPrompt]], list[float]]:
    """What tells, from prompts and their cheap answers, how much asking again would bring."""
    seen = _features(rows, scorer)
    means, spread = seen.mean(0), seen.std(0) + _CALM
    seen = (seen - means) / spread
    gains = np.array([row.gain for row in rows])
    weights = np.linalg.solve(seen.T @ seen + _RIDGE * np.eye(seen.shape[1]), seen.T @ (gains - gains.mean()))

    def scores(others: Sequence[LabelledPrompt]) -> list[float]:
        return [float(one) for one in (_features(others, scorer) - means) / spread @ weights]

    return scores


def _features(rows: Sequence[LabelledPrompt], scorer: PromptScorer) -> NDArray[np.float64]:
    return np.array([(*look(row.prompt.text, row.answer), scorer.score(row.prompt)) for row in rows])
