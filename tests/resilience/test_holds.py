"""Who is on hold: by upstream and model, by endpoint, or a whole account."""

from gateway.core.call import Candidate
from gateway.queueing.advertised_quota import Quota
from gateway.resilience.holds import Holds

NOW = 100.0
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"


def candidate(upstream: str, model: str) -> Candidate:
    return Candidate(upstream, model, b'"x"')


BIG, MINI, ELSEWHERE = candidate("u", "big"), candidate("u", "mini"), candidate("v", "big")


def held(holds: Holds, endpoint: str = CHAT, tokens: int = 1, now: float = NOW) -> list[Candidate]:
    return [each for each in (BIG, MINI, ELSEWHERE) if holds.held(each, endpoint, tokens, now)]


def test_nothing_is_held_at_first():
    holds = Holds()
    assert held(holds) == []
    assert not holds.due
    assert not holds.quotas


def test_a_model_is_held_for_all_its_endpoints_and_no_other_model():
    holds = Holds()
    holds.hold_model(BIG, NOW + 5)
    assert held(holds) == held(holds, EMBEDDINGS) == [BIG]
    assert held(holds, now=NOW + 5) == []


def test_a_hold_covers_every_public_model_that_leads_to_the_same_one():
    holds = Holds()
    holds.hold_model(BIG, NOW + 5)
    assert holds.held(candidate("u", "big"), CHAT, 1, NOW)


def test_an_endpoint_is_held_alone():
    holds = Holds()
    holds.hold_model(BIG, NOW + 5, EMBEDDINGS)
    assert held(holds) == []
    assert held(holds, EMBEDDINGS) == [BIG]


def test_an_account_holds_all_models_of_its_upstream():
    holds = Holds()
    holds.hold_upstream(BIG, NOW + 30)
    assert held(holds) == [BIG, MINI]
    assert held(holds, now=NOW + 30) == []


def test_a_model_without_quota_is_held_until_the_reset():
    quota = Quota()
    quota.learn({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "8s"}, NOW)
    holds = Holds({("u", "big"): quota})
    assert held(holds) == [BIG]
    assert held(holds, now=NOW + 8) == []


def test_a_model_is_held_for_a_call_that_needs_more_tokens_than_are_left():
    quota = Quota()
    quota.learn({"x-ratelimit-remaining-tokens": "100", "x-ratelimit-reset-tokens": "8s"}, NOW)
    holds = Holds({("u", "big"): quota})
    assert held(holds, tokens=100) == []
    assert held(holds, tokens=101) == [BIG]
