"""The precheck rejects only what the limit gate would reject anyway, and reserves nothing."""

import math

import pytest
from kit.calls import make_call

from gateway.core.budget_calendar import Calendar
from gateway.core.call import Call, TokenEstimate
from gateway.core.caller import STRANGER, Caller, KeyLimits
from gateway.limits.account import Account, Denial, ReservationRequest
from gateway.limits.key_limit_gate import KeyLimitGate, LimitPrecheck, limit_precheck
from gateway.telemetry.metrics import Metrics
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.models import HEALTH, MODELS, UNKNOWN

NOW = 1000.0
DAY = "1970-01-01"
NOTHING = ReservationRequest()


@pytest.fixture
def limit() -> KeyLimitGate:
    return KeyLimitGate(lambda call: TokenEstimate(1, 1, True), Calendar("UTC", 0.0, NOW), Metrics())


def account(limits: KeyLimits, calls: int = 0, wanted: ReservationRequest = NOTHING) -> Account:
    """An account after `calls` reservations."""
    made = Account(limits, DAY)
    for _ in range(calls):
        assert not isinstance(made.reserve(wanted, DAY, NOW), Denial)
    return made


def called(of: Account | None, endpoint: str = CHAT) -> Call:
    call = make_call(endpoint, NOW)
    call.caller = Caller("team-a", None, of)
    return call


def test_it_rejects_as_the_limit_gate_does_and_reserves_nothing(limit: KeyLimitGate) -> None:
    of = account(KeyLimits(rpm=3, concurrency=9), 3)
    before = of.status(NOW), of.in_flight
    rejection = LimitPrecheck(limit).admit(called(of), NOW)
    assert rejection == limit.admit(called(of), NOW)
    assert rejection is not None
    assert rejection.retry_after == pytest.approx(20.0)
    assert (of.status(NOW), of.in_flight) == before


def test_a_call_within_the_limits_passes_and_nothing_is_reserved(limit: KeyLimitGate) -> None:
    of = account(KeyLimits(rpm=3, tpm=1000, concurrency=9), 2)
    call = called(of)
    before = of.status(NOW), of.in_flight
    assert LimitPrecheck(limit).admit(call, NOW) is None
    call.lease.settle(call, NOW)
    assert (of.status(NOW), of.in_flight) == before


def test_without_limits_or_a_caller_every_call_passes(limit: KeyLimitGate) -> None:
    stranger = called(None)
    stranger.caller = STRANGER
    assert LimitPrecheck(limit).admit(stranger, NOW) is None
    assert LimitPrecheck(limit).admit(called(None), NOW) is None


def test_only_limited_endpoints_are_checked(limit: KeyLimitGate) -> None:
    of = account(KeyLimits(rpm=1), 1)
    assert LimitPrecheck(limit).admit(called(of, EMBEDDINGS), NOW) is not None
    for other in (MODELS, HEALTH, UNKNOWN):
        assert LimitPrecheck(limit).admit(called(of, other), NOW) is None


@pytest.mark.parametrize(
    ("limits", "calls", "wanted", "expected"),
    [
        (KeyLimits(rpm=3), 2, ReservationRequest(), None),
        (KeyLimits(rpm=3), 3, ReservationRequest(), Denial("rpm", 20.0)),
        (KeyLimits(concurrency=2), 1, ReservationRequest(), None),
        (KeyLimits(concurrency=2), 2, ReservationRequest(), Denial("concurrency", 0.5)),
        (KeyLimits(rpm=1, concurrency=1), 1, ReservationRequest(), Denial("rpm", 60.0)),
        # The token bucket empties before a request fits again ...
        (KeyLimits(rpm=3, tpm=300), 3, ReservationRequest(33), Denial("rpm", 20.0)),
        # ... or later, and then a call's wait depends on its tokens.
        (KeyLimits(rpm=3, tpm=300), 3, ReservationRequest(34), None),
        (KeyLimits(rpm=1, usd_per_day=100), 1, ReservationRequest(committed_cost=99), Denial("rpm", 60.0)),
        (KeyLimits(rpm=1, usd_per_day=100), 1, ReservationRequest(committed_cost=100), None),
        (KeyLimits(tpm=100), 1, ReservationRequest(100), None),
    ],
)
def test_when_an_account_is_exhausted_for_any_call(
    limits: KeyLimits, calls: int, wanted: ReservationRequest, expected: Denial | None
) -> None:
    denial = account(limits, calls, wanted).exhausted(NOW)
    assert (denial is None) == (expected is None)
    if denial is not None and expected is not None:
        assert denial == Denial(expected.limit, pytest.approx(expected.wait))


def test_after_the_wait_it_is_not_exhausted() -> None:
    of = account(KeyLimits(rpm=7), 7)
    denial = of.exhausted(NOW)
    assert denial is not None
    assert of.exhausted(NOW + denial.wait) is None
    assert not isinstance(of.reserve(ReservationRequest(), DAY, NOW + denial.wait), Denial)


def test_the_gate_exists_only_if_a_caller_has_a_limit_it_can_check(limit: KeyLimitGate) -> None:
    def callers(*limits: KeyLimits | None) -> list[Caller]:
        return [Caller("k", None, None if each is None else Account(each)) for each in limits]

    assert limit_precheck(limit, callers(None, KeyLimits(tpm=1), KeyLimits(usd_per_day=1))) == ()
    assert len(limit_precheck(limit, callers(None, KeyLimits(rpm=1)))) == 1
    assert len(limit_precheck(limit, callers(KeyLimits(concurrency=1)))) == 1


def test_a_call_that_no_wait_helps_is_told_so_as_soon_as_it_can_be_asked(limit: KeyLimitGate) -> None:
    of = account(KeyLimits(rpm=1, tpm=10), 1)
    assert of.exhausted(NOW) == Denial("rpm", pytest.approx(60.0))
    assert of.reserve(ReservationRequest(11), DAY, NOW) == Denial("too_large", math.inf)
