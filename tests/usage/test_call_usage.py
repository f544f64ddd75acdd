"""What a call is charged, by how it ended."""

from typing import Any

import pytest
from kit.calls import make_call

from gateway.core.call import Call, Candidate, Price, TokenEstimate, TokenUsage
from gateway.usage.call_usage import NOTHING, charge, spent
from gateway.wire.openai.embeddings import EMBEDDINGS

ESTIMATE = TokenEstimate(100, 256, False)


def ended(outcome: str, **more: Any) -> Call:
    """A call that is over."""
    return make_call(now=1.0, **{"outcome": outcome, "estimate": ESTIMATE, "sent_at": 2.0, **more})


@pytest.mark.parametrize("outcome", ["ok", "client_gone", "truncated", "upstream_timeout"])
def test_the_upstreams_count_wins(outcome: str) -> None:
    tokens = TokenUsage(7, 3, 2, 1)
    assert spent(ended(outcome, tokens=tokens, generated=9)) is tokens
    assert spent(ended(outcome, tokens=tokens, estimate=None)) is tokens


def test_an_answer_without_a_count_is_charged_by_the_relayed_output() -> None:
    assert spent(ended("ok", generated=12)) == TokenUsage(100, 12)


def test_a_client_that_leaves_pays_for_the_input_once_it_was_sent() -> None:
    assert spent(ended("client_gone")) == TokenUsage(100, 0)
    assert spent(ended("client_gone", first_token_at=3.0, generated=12)) == TokenUsage(100, 12)
    assert spent(ended("client_gone", sent_at=0.0)) == NOTHING


@pytest.mark.parametrize("outcome", ["truncated", "upstream_timeout", "upstream_error", "shed"])
def test_a_broken_stream_is_charged_once_it_had_started(outcome: str) -> None:
    assert spent(ended(outcome, first_token_at=3.0, generated=12)) == TokenUsage(100, 12)
    assert spent(ended(outcome)) == NOTHING


@pytest.mark.parametrize("outcome", ["limited", "client_error", "shed"])
def test_a_call_that_was_never_sent_costs_nothing(outcome: str) -> None:
    assert spent(ended(outcome, sent_at=0.0)) == NOTHING


@pytest.mark.parametrize("output_price", [None, 5 * 10**9])
def test_embeddings_have_no_output_whatever_their_upstream_reports(output_price: int | None) -> None:
    call = ended("ok")
    call.request.endpoint = EMBEDDINGS
    call.routing.candidate = Candidate("local", "up", b'"up"', Price(2 * 10**9, output_price, 2 * 10**9))
    charge(call, TokenUsage(7, 7), b"{}")
    assert (call.usage.tokens, spent(call), call.usage.cost) == (TokenUsage(7), TokenUsage(7), 7 * 2_000)
