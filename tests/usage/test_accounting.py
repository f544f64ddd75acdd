"""What accounting counts at the end of a call: the same tokens as the ledger, with their source."""

import pytest
from kit.calls import make_call
from kit.samples import samples

from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, Candidate, FailedUsage, Route, TokenEstimate, TokenUsage
from gateway.telemetry.metrics import Metrics
from gateway.usage.accounting import UsageAccounting

CANDIDATE = Candidate("local", "up-small", b'"up-small"')
OTHER = Candidate("spare", "up-small", b'"up-small"')
ROUTE = Route("small", b'"small"', (CANDIDATE, OTHER))


class Accounting:
    """Accounting, its metrics, and the attempts that it recorded."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.recorded: list[FailedUsage] = []
        self._gate = UsageAccounting(
            Calendar("UTC", 0.0, 0.0),
            self._estimate,
            self.metrics,
            (),
            always=True,
            on_attempt=(lambda call, attempt, cost, now, last: self.recorded.append(attempt),),
        )

    @staticmethod
    def _estimate(call: Call) -> None:
        call.usage.estimate = TokenEstimate(7, 100, capped=False)

    def admitted(self) -> Call:
        """A call that was sent to its candidate."""
        call = make_call(now=0.0)
        assert self._gate.admit(call, 0.0) is None
        call.routing.route, call.routing.candidate, call.attempts = ROUTE, CANDIDATE, 1
        call.timing.sent_at, call.response.outcome = 1.0, "ok"
        return call

    def counted(self) -> dict[tuple[str, str, str], float]:
        """`sluice_tokens_total` by upstream, type and source."""
        return {
            (sample.labels["upstream"], sample.labels["type"], sample.labels["source"]): sample.value
            for sample in samples(self.metrics, "sluice_tokens_total")
        }


@pytest.fixture
def accounting() -> Accounting:
    return Accounting()


def test_tokens_are_counted_by_type_and_nought_makes_no_series(accounting: Accounting) -> None:
    for tokens in (TokenUsage(input=10, output=4, cached_input=8), TokenUsage(input=1, output=2)):
        call = accounting.admitted()
        call.usage.tokens = tokens
        call.lease.settle(call, 2.0)
    assert accounting.counted() == {
        ("local", "input", "upstream"): 11,
        ("local", "output", "upstream"): 6,
        ("local", "cached_input", "upstream"): 8,
    }


@pytest.mark.parametrize("outcome", ["ok", "client_gone"])
def test_what_no_upstream_reported_is_counted_as_estimated(accounting: Accounting, outcome: str) -> None:
    call = accounting.admitted()
    call.response.outcome, call.usage.generated = outcome, 5
    call.lease.settle(call, 2.0)
    assert accounting.counted() == {("local", "input", "estimated"): 7, ("local", "output", "estimated"): 5}


def test_failed_attempts_are_counted_where_they_were_made(accounting: Accounting) -> None:
    call = accounting.admitted()
    call.usage.tokens = TokenUsage(input=3, output=2)
    call.usage.failed = (
        FailedUsage(OTHER, TokenUsage(input=3, output=9, reasoning=1)),
        FailedUsage(OTHER, TokenUsage(output=4), estimated=True),
    )
    call.lease.settle(call, 2.0)
    assert accounting.counted() == {
        ("local", "input", "upstream"): 3,
        ("local", "output", "upstream"): 2,
        ("spare", "input", "upstream"): 3,
        ("spare", "output", "upstream"): 9,
        ("spare", "reasoning", "upstream"): 1,
        ("spare", "input", "estimated"): 7,
        ("spare", "output", "estimated"): 4,
    }
    for type_ in ("input", "output", "reasoning"):
        counted = sum(value for (_, kind, _), value in accounting.counted().items() if kind == type_)
        assert counted == sum(getattr(attempt.tokens, type_) for attempt in accounting.recorded)


def test_an_answer_from_the_cache_used_no_tokens(accounting: Accounting) -> None:
    call = accounting.admitted()
    call.cached_by, call.usage.tokens = "hit", TokenUsage(input=3)
    call.lease.settle(call, 2.0)
    assert accounting.counted() == {}
