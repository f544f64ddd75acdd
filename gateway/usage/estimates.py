"""Estimates of a call's usage: made when first needed, and corrected by the upstream's count."""

from collections.abc import Container
from typing import Final

from gateway.core.call import Call, TokenEstimate, TokenUsage
from gateway.telemetry.metrics import Metrics
from gateway.usage.estimator import Estimator
from gateway.wire.openai.token_weight import weigh
from gateway.wire.request_body import fields_of

LEARN_ALL: Final = 128
"""Number of calls of a model that are all learned from; after them, only every `LEARN_EVERY`th is."""
LEARN_EVERY: Final = 8


class TokenEstimates:
    """Fills in `call.usage.estimate`, and learns from the upstreams' counts."""

    def __init__(self, estimator: Estimator, metrics: Metrics) -> None:
        self._estimator = estimator
        self._calls: dict[str, int] = {}
        self._ratio = metrics.estimate_ratio.observer

    def retain(self, models: Container[str], keys: Container[str] | None) -> None:
        """Forget what was learned of all other models, by their names upstream, and keys (None: of no key)."""
        self._estimator.retain(models, keys)
        self._calls = {model: calls for model, calls in self._calls.items() if model in models}

    def make(self, call: Call) -> TokenEstimate:
        """Set and return the call's estimate for its candidate."""
        candidate, caller, body = call.routing.candidate, call.caller, call.request.body
        fields = fields_of(call.request)
        weight, caps = weigh(fields, body), call.request.endpoint.caps(fields)
        estimate = self._estimator.estimate(weight, caps, candidate.model, caller.label, body)
        call.usage.estimate = estimate
        return estimate

    def book(self, call: Call, used: TokenUsage, now: float) -> None:
        """Compare the estimate with the upstream's count at the end of the call, and learn from it."""
        estimate, candidate = call.usage.estimate, call.routing.candidate
        if estimate is None or call.usage.tokens is None:
            return
        if call.batch_size > 1:  # its tokens are a share of the batch, split by the estimates themselves
            return
        model = candidate.model
        calls = self._calls[model] = self._calls.get(model, 0) + 1
        if calls > LEARN_ALL and calls % LEARN_EVERY:
            return  # learning costs more than estimating, and the factors change slowly by now
        if used.input > 0 and estimate.input > 0:
            self._ratio(call.routing.route.name)(used.input / estimate.input)
        self._estimator.learn(estimate, model, call.caller.label, used)
