"""When an estimate is made, and which answers it learns from."""

from gateway.core.call import CHAT, Call, Candidate, Credentials, Route, TokenEstimate, TokenUsage
from gateway.core.caller import Caller
from gateway.telemetry.metrics import Metrics
from gateway.usage.estimates import ALL, ONE_IN, TokenEstimates
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
    call = Call(CHAT, "id", Credentials(None, None, None), 0.0)
    call.body, call.candidate, call.route, call.caller = body, CANDIDATE, ROUTE, Caller("team", None)
    estimates.make(call)
    call.tokens = TokenUsage(20, 5)
    return call


def test_the_first_answers_are_all_compared_and_learned_from_and_then_one_in_some():
    estimator, metrics = Learns(), Metrics()
    estimates = TokenEstimates(estimator, metrics)
    for _ in range(ALL + 10 * ONE_IN):
        call = answered(estimates)
        estimates.book(call, call.tokens or TokenUsage(), 1.0)
    assert estimator.lessons == ALL + 10
    count = metrics.registry.get_sample_value("sluice_token_estimate_ratio_count", {"model": "small"})
    assert count == ALL + 10


def test_a_share_of_a_batch_teaches_nothing():
    estimator = Learns()
    estimates = TokenEstimates(estimator, Metrics())
    call = answered(estimates)
    call.batch_size = 2
    estimates.book(call, call.tokens or TokenUsage(), 1.0)
    assert estimator.lessons == 0


def test_what_the_upstream_did_not_count_teaches_nothing():
    estimator = Learns()
    estimates = TokenEstimates(estimator, Metrics())
    call = answered(estimates)
    call.tokens = None
    estimates.book(call, TokenUsage(1, 1), 1.0)
    assert estimator.lessons == 0
