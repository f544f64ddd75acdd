"""When an estimate is made, and which answers it learns from."""

from kit.calls import make_call
from kit.samples import value

from gateway.core.call import Call, Candidate, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller
from gateway.telemetry.metrics import Metrics
from gateway.usage.estimates import LEARN_ALL, LEARN_EVERY, TokenEstimates
from gateway.usage.estimator import Estimator

CANDIDATE = Candidate("local", "up", b'"up"')
ROUTE = Route("small", b'"small"', (CANDIDATE,))


class Learns(Estimator):
    """Counts what it is taught."""

    def __init__(self) -> None:
        super().__init__()
        self.lessons = 0

    def learn(self, estimate: TokenEstimate, model: str, key: str, tokens: TokenUsage) -> None:
        self.lessons += 1
        super().learn(estimate, model, key, tokens)


def answered(estimates: TokenEstimates, body: bytes = b'{"messages":[{"content":"hello there"}]}') -> Call:
    call = make_call()
    call.request.body, call.routing.candidate, call.routing.route, call.caller = (
        body,
        CANDIDATE,
        ROUTE,
        Caller("team", None),
    )
    estimates.make(call)
    call.usage.tokens = TokenUsage(20, 5)
    return call


def test_the_first_answers_are_all_learned_from_and_later_ones_sampled():
    estimator, metrics = Learns(), Metrics()
    estimates = TokenEstimates(estimator, metrics)
    for _ in range(LEARN_ALL + 10 * LEARN_EVERY):
        call = answered(estimates)
        estimates.book(call, call.usage.tokens or TokenUsage(), 1.0)
    assert estimator.lessons == LEARN_ALL + 10
    assert value(metrics, "sluice_token_estimate_ratio_count", model="small") == LEARN_ALL + 10


def test_a_share_of_a_batch_is_not_learned_from():
    estimator = Learns()
    estimates = TokenEstimates(estimator, Metrics())
    call = answered(estimates)
    call.batch_size = 2
    estimates.book(call, call.usage.tokens or TokenUsage(), 1.0)
    assert estimator.lessons == 0


def test_uncounted_usage_is_not_learned_from():
    estimator = Learns()
    estimates = TokenEstimates(estimator, Metrics())
    call = answered(estimates)
    call.usage.tokens = None
    estimates.book(call, TokenUsage(1, 1), 1.0)
    assert estimator.lessons == 0
