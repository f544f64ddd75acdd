"""How many tokens a call will take, before it is sent: the input from its weight, the output from its cap, or
from what this key's answers of this model have been like."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final

from gateway.call import Estimate, Tokens
from gateway.policy.expected_output import ExpectedOutput
from gateway.policy.token_factor import CLASSES, TokenFactors

Caps = tuple[int | None, int]
"""Output tokens at most, of all choices together (None: no cap), and the number of choices."""

Exact = Callable[[bytes, str], int | None]
"""Input tokens of a body for a model, counted; None where it cannot tell."""

FIRST_GUESS: Final = 256
"""Output tokens of an answer without a cap while nothing has been learned."""


class Estimator:
    """Learns per model as sent upstream, and per key; both are closed sets, so memory is bounded."""

    def __init__(self, exact: Exact | None = None) -> None:
        self._exact = exact
        self._factors: defaultdict[str, TokenFactors] = defaultdict(TokenFactors)
        self._outputs: dict[tuple[str, str], ExpectedOutput] = {}

    def estimate(
        self, weight: Sequence[int], caps: Caps, model: str, key: str, body: bytes = b""
    ) -> Estimate:
        """What the call will take.

        `weight` counts by the classes of `token_factor.FITTED`, and last the tokens that the client has
        counted out itself. Only an exact counter looks at `body`.
        """
        counted = self._exact(body, model) if self._exact is not None else None
        if counted is None:
            counted = ceil(self._factors[model].tokens(weight)) + weight[-1]
        cap, choices = caps
        if cap is not None:
            return Estimate(counted, cap, True, choices, weight)
        expected = self._outputs.get((key, model))
        each = expected.tokens if expected is not None else FIRST_GUESS
        return Estimate(counted, each * choices, False, choices, weight)

    def learn(self, estimate: Estimate, model: str, key: str, tokens: Tokens) -> None:
        """The call took `tokens`, as its upstream counted them. How long answers are is learned from those
        without a cap only.
        """
        weight = estimate.weight
        if len(weight) > CLASSES:
            self._factors[model].learn(weight[:CLASSES], tokens.input - weight[CLASSES])
        if not estimate.capped and tokens.output > 0:
            expected = self._outputs.setdefault((key, model), ExpectedOutput())
            expected.learn(tokens.output / estimate.choices)
