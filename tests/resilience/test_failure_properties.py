"""Whatever happens and in whatever order, the policies of failure keep their bounds."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.pieces import examples

from gateway.resilience.circuit_breaker import (
    CLOSED,
    HALF_OPEN,
    JITTER,
    LAST_RESORT_S,
    OPEN,
    CircuitBreaker,
    Outcome,
)
from gateway.resilience.poison_requests import DEATHS, MAX_SUSPECTS, SUSPENDED_S, PoisonRequests
from gateway.resilience.retry_budget import RetryBudget, backoff, pause

OUTCOMES = st.sampled_from(["success", "failure", "failure", "none"])
STEPS = st.sampled_from([0.0, 0.001, 0.3, 1.0, 4.0, 13.0, 70.0])
PICK = st.integers(0, 10**6)


class Guarded(RuleBasedStateMachine):
    """A breaker, and the calls that it has let go, which come back in any order or never."""

    @initialize(
        seed=st.integers(0, 99),
        failures=st.integers(1, 4),
        open_s=st.sampled_from([0.25, 1.0, 5.0]),
        times=st.sampled_from([1.0, 3.0, 12.0]),
    )
    def begin(self, seed: int, failures: int, open_s: float, times: float) -> None:
        self.now = 100.0
        self.open_s, self.max_open_s = open_s, open_s * times
        self.breaker = CircuitBreaker(failures, open_s, self.max_open_s, Random(seed))
        self.out: list[int] = []
        self.probe = 0  # the ticket of the ordinary probe that is out
        self.lone = -LAST_RESORT_S  # the latest call that went because nobody else could take it

    def settle(self, ticket: int, outcome: Outcome) -> None:
        before = self.breaker.state(self.now)
        self.breaker.record(outcome, self.now, ticket)
        if before != CLOSED and self.breaker.state(self.now) == CLOSED:
            assert outcome == "success"
            self.probe = 0  # no call of the time before counts any more
        if ticket == self.probe:
            self.probe = 0
        if before != OPEN and self.breaker.state(self.now) == OPEN:
            assert outcome == "failure"
            self.bounded()

    def bounded(self) -> None:
        """It has just opened: it stays so for neither too short nor too long."""
        shortest = (1 - JITTER) * self.open_s
        assert self.breaker.state(self.now + 0.999 * shortest) == OPEN
        assert self.breaker.state(self.now + 1.001 * self.max_open_s) == HALF_OPEN

    @rule()
    def ordinary_call(self) -> None:
        state = self.breaker.state(self.now)
        ticket = self.breaker.acquire(self.now)
        if state == OPEN:
            assert not ticket
        if state == HALF_OPEN:
            assert bool(ticket) == (not self.probe), "one probe, and a free place is always to be had"
            self.probe = self.probe or ticket
        if ticket:
            self.out.append(ticket)

    @rule()
    def call_without_another_candidate(self) -> None:
        state, wait = self.breaker.state(self.now), self.breaker.wait(self.now)
        ticket = self.breaker.acquire(self.now, last_resort=True)
        assert bool(ticket) == (wait == 0.0), "what it tells to wait is honest"
        if ticket:
            self.out.append(ticket)
            if state == HALF_OPEN and not self.probe:
                self.probe = ticket
            elif state != CLOSED:
                assert self.now - self.lone >= LAST_RESORT_S - 1e-9
            if state != CLOSED:
                self.lone = self.now

    @precondition(lambda self: self.out)
    @rule(pick=PICK, outcome=OUTCOMES)
    def one_comes_back(self, pick: int, outcome: Outcome) -> None:
        self.settle(self.out.pop(pick % len(self.out)), outcome)

    @precondition(lambda self: self.probe in self.out)
    @rule()
    def the_probe_ends_with_none(self) -> None:
        ticket = self.probe
        self.out.remove(ticket)
        self.settle(ticket, "none")
        assert self.breaker.state(self.now) == HALF_OPEN
        self.ordinary_call()
        assert self.probe

    @rule(seconds=STEPS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def a_lone_upstream_never_waits_long(self) -> None:
        assert 0.0 <= self.breaker.wait(self.now) <= LAST_RESORT_S + 1e-9


TestGuarded = Guarded.TestCase
TestGuarded.settings = examples(150)


@examples(200)
@given(
    st.sampled_from([0.0, 0.1, 0.25, 1.0]),
    st.lists(st.tuples(st.booleans(), STEPS, st.integers(1, 40)), max_size=60),
)
def test_a_dead_upstream_sees_at_most_its_share_of_extra_calls(share: float, steps: list[tuple[bool, float, int]]):
    budget, now, requests, extra = RetryBudget(share), 100.0, 0, 0
    for asks, gap, times in steps:
        now += gap
        for _ in range(times):
            if asks:
                requests += 1
                budget.deposit(now)
            else:
                extra += budget.try_withdraw(now)
            assert extra <= share * requests + 3 + 1e-6


@examples(200)
@given(st.lists(st.tuples(st.booleans(), STEPS, st.integers(1, 40)), max_size=60))
def test_the_budget_is_what_cutting_it_at_every_moment_leaves(steps: list[tuple[bool, float, int]]):
    """Against the plain way: after each step the balance is cut to the bound."""
    share, reserve = 0.125, 3.0  # exact in floats
    budget, now, balance = RetryBudget(share), 100.0, reserve
    seconds: Counter[int] = Counter()
    for asks, gap, times in steps:
        for until in [*(now + second for second in range(1, int(gap) + 1)), now + gap]:
            recent = sum(number for second, number in seconds.items() if int(until) - second < 10)
            balance = min(balance, max(reserve, share * recent))
        now += gap
        for _ in range(times):
            if asks:
                budget.deposit(now)
                seconds[int(now)] += 1
                recent = sum(number for second, number in seconds.items() if int(now) - second < 10)
                balance = min(balance + share, max(reserve, share * recent))
            else:
                assert budget.try_withdraw(now) == (balance >= 1.0)
                balance -= balance >= 1.0


@given(
    st.integers(1, 10**6),
    st.floats(0, 10),
    st.floats(0, 100),
    st.none() | st.floats(0, 1e6),
    st.floats(-5, 700),
)
@examples(300)
def test_pauses_are_within_their_bounds(n: int, base_s: float, max_s: float, asked_s: float | None, left_s: float):
    rng = Random(n)
    assert 0.0 <= backoff(n, base_s, max_s, rng) <= max_s
    seconds = pause(asked_s, n, base_s, max_s, left_s, rng)
    if seconds is None:
        assert (asked_s is not None and asked_s > max_s) or left_s <= max_s
    else:
        assert (asked_s or 0.0) <= seconds <= max_s
        assert seconds < left_s


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), STEPS), max_size=80))
def test_no_request_is_suspended_without_two_deaths_and_none_for_long(deaths: list[tuple[int, str, float]]):
    poison, now, seen = PoisonRequests(), 100.0, Counter[bytes]()
    for number, upstream, gap in deaths:
        now += gap
        body = b"%d" % number
        poison.record_death(body, upstream, now)
        seen[body] += 1
        for other in (b"%d" % one for one in range(6)):
            left = poison.suspended_for(other, now)
            assert left is None or (seen[other] >= DEATHS and 0.0 < left <= SUSPENDED_S)
        assert poison.suspended_for(body, now + SUSPENDED_S) is None


@examples(5)
@given(st.integers(MAX_SUSPECTS + 1, 3 * MAX_SUSPECTS), STEPS)
def test_only_so_many_are_remembered(number: int, gap: float):
    poison = PoisonRequests()
    bodies = [b"%d" % one for one in range(number)]
    for upstream in "ab":
        for body in bodies:
            poison.record_death(body, upstream, 100.0)
    # Each had been forgotten before it died for the second time.
    assert not any(poison.suspended_for(body, 100.0 + gap) for body in bodies)
