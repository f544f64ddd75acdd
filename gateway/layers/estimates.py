"""Estimates of what a call will use: made once, when somebody needs it, and corrected by what it has used."""

from functools import lru_cache

from gateway.call import Call, Estimate, Tokens
from gateway.metrics import Metrics
from gateway.policy.tokens import Estimator
from gateway.wire import payload


class Estimates:
    """Fills in `call.estimate`, and learns from the upstreams' own counts."""

    def __init__(self, estimator: Estimator, metrics: Metrics) -> None:
        self._estimator = estimator
        self._ratio = lru_cache(maxsize=None)(metrics.estimate_ratio.labels)

    def make(self, call: Call) -> Estimate:
        """The call's estimate, for its candidate."""
        if call.candidate is None or call.caller is None:
            raise AssertionError("the gates above set both")
        weight, caps = payload.measure(call.body, call.endpoint)
        call.estimate = self._estimator.estimate(
            weight, caps, call.candidate.model, call.caller.name, call.body
        )
        return call.estimate

    def book(self, call: Call, used: Tokens, now: float) -> None:
        """The call is over; what an upstream has counted itself is learned from."""
        estimate = call.estimate
        if estimate is None or call.tokens is None or call.candidate is None or call.caller is None:
            return
        if call.batch_size > 1:  # its tokens are a share by our own estimate
            return
        self._estimator.learn(estimate, call.candidate.model, call.caller.name, used)
        if call.route is not None and used.input > 0 and estimate.input > 0:
            self._ratio(call.route.name).observe(used.input / estimate.input)
