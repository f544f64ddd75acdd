"""Whatever calls reserve, use and return, no window sees more than the limit, and at rest nothing is held."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.core.caller import KeyLimits
from gateway.limits.account import Account, Denial, Reservation, ReservationRequest

RPM, TPM, PLACES, BUDGET = 20, 300, 4, 5_000


@dataclass
class Held:
    """An unsettled call."""

    reservation: Reservation
    at: float
    index: int


class Limited(RuleBasedStateMachine):
    """Calls arrive, use a part of what they reserved, and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.account = Account(KeyLimits(RPM, TPM, PLACES, BUDGET))
        self.now = 1000.0
        self.held: list[Held] = []
        self.admitted: list[tuple[float, float]] = []  # when, tokens: reserved, later used
        self.spent = 0

    @rule(seconds=st.floats(0, 90))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(committed=st.integers(0, 320), expected=st.integers(0, 400), cost=st.integers(0, 900))
    def arrive(self, committed: int, expected: int, cost: int) -> None:
        before = self.account.status(self.now), self.account.in_flight, self.account.spent_today
        paid = not cost or (self.account.spent_today < BUDGET and self.account.spent_today + cost <= BUDGET)
        wanted = (
            committed if committed or expected else -TPM
        )  # a call without tokens never waits for them, whatever the debt
        free = self.account.in_flight < PLACES and self.would_fit(wanted, self.now)
        outcome = self.account.reserve(ReservationRequest(committed, expected, cost), "d", self.now)
        assert isinstance(outcome, Reservation) == (paid and free)
        if isinstance(outcome, Denial):
            assert (
                self.account.status(self.now),
                self.account.in_flight,
                self.account.spent_today,
            ) == before
            if outcome.limit in ("rpm", "tpm") and outcome.wait < 1e9:
                assert self.would_fit(committed, self.now + outcome.wait)
        else:
            self.held.append(Held(outcome, self.now, len(self.admitted)))
            self.admitted.append((self.now, outcome.tokens))

    def would_fit(self, committed: int, at: float) -> bool:
        meters = self.account
        assert meters.requests is not None
        assert meters.tokens is not None
        return meters.requests.wait(1, at) == 0.0 and meters.tokens.wait(committed, at) == 0.0

    @rule(data=st.data(), share=st.floats(0, 1), cost_share=st.floats(0, 1))
    def end(self, data: st.DataObject, share: float, cost_share: float) -> None:
        if not self.held:
            return
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        used, cost = int(held.reservation.tokens * share), int(held.reservation.cost * cost_share)
        self.account.settle(held.reservation, used, cost, self.now)
        self.admitted[held.index] = (held.at, used)
        self.spent += cost

    @invariant()
    def no_window_sees_more_than_the_limit(self) -> None:
        for first in range(len(self.admitted)):
            start, tokens = self.admitted[first][0], 0.0
            for count, (at, used) in enumerate(self.admitted[first:], 1):
                tokens += used
                assert tokens <= TPM + TPM / 60 * (at - start) + 1e-3
                assert count <= RPM + RPM / 60 * (at - start) + 1e-3

    @invariant()
    def slots_and_dollars_add_up(self) -> None:
        assert self.account.in_flight == len(self.held) <= PLACES
        assert self.account.spent_today == self.spent + sum(held.reservation.cost for held in self.held) <= BUDGET

    def teardown(self) -> None:
        while self.held:
            held = self.held.pop()
            self.account.settle(held.reservation, 0, 0, self.now)
        assert self.account.in_flight == 0
        assert self.account.spent_today == self.spent


TestLimited = Limited.TestCase
TestLimited.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 8), st.integers(0, 80)), min_size=3, max_size=12),
    st.integers(0, 300),
    st.integers(0, 400),
)
def test_the_precheck_denies_only_what_the_reservation_denies_and_alike(
    calls: list[tuple[float, int]], committed: int, expected: int
) -> None:
    account, now = Account(KeyLimits(rpm=4, tpm=300, concurrency=6, usd_per_day=2)), 1000.0
    for seconds, tokens in calls:
        now += seconds
        account.reserve(ReservationRequest(tokens, committed_cost=tokens % 2), "d", now)
        denial = account.exhausted(now)
        if denial is not None:
            assert account.reserve(ReservationRequest(committed, expected), "d", now) == denial
            assert account.exhausted(now) == denial
