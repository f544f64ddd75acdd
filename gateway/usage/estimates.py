"""Estimates of what a call will use: made once, when somebody needs it, and corrected by what it has used."""

from functools import lru_cache
from typing import Final

from gateway.core.call import Call, TokenEstimate, TokenUsage
from gateway.telemetry.metrics import Metrics, fast_observe
from gateway.usage import token_weight as payload
from gateway.usage.estimator import Estimator

ALL: Final = 128
"""So many calls of a model are all learned from ..."""
ONE_IN: Final = 8
"""... and then every eighth."""


class TokenEstimates:
    """Fills in `call.estimate`, and learns from the upstreams' own counts."""

    def __init__(self, estimator: Estimator, metrics: Metrics) -> None:
        self._estimator = estimator
        self._seen: dict[str, int] = {}
        ratio = metrics.estimate_ratio
        self._ratio = lru_cache(maxsize=None)(lambda model: fast_observe(ratio.labels(model)))

    def make(self, call: Call) -> TokenEstimate:
        """The call's estimate, for its candidate."""
        candidate, caller, body = call.candidate, call.caller, call.body
        if candidate is None or caller is None:
            raise AssertionError("the gates above set both")
        weight, caps = payload.measure(body, call.endpoint)
        estimate = self._estimator.estimate(weight, caps, candidate.model, caller.name, body)
        call.estimate = estimate
        return estimate

    def book(self, call: Call, used: TokenUsage, now: float) -> None:
        """The call is over; what an upstream has counted itself is compared and learned from."""
        estimate, candidate = call.estimate, call.candidate
        if estimate is None or call.tokens is None or candidate is None or call.caller is None:
            return
        if call.batch_size > 1:  # its tokens are a share by our own estimate
            return
        model = candidate.model
        seen = self._seen[model] = self._seen.get(model, 0) + 1
        if seen > ALL and seen % ONE_IN:
            return  # learning costs more than the estimate; what is known by now changes slowly
        if call.route is not None and used.input > 0 and estimate.input > 0:
            self._ratio(call.route.name)(used.input / estimate.input)
        self._estimator.learn(estimate, model, call.caller.name, used)
