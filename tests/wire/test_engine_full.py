"""What engines say when their own queue is full, and what only sounds like it."""

import pytest

from gateway.wire.openai.engine_full import is_engine_full


@pytest.mark.parametrize(
    "message",
    [
        # vLLM, vllm/exceptions.py
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
        "The engine has reached its prefill token backlog limit. Please try again later or on a different instance.",
        "no slot available",  # llama.cpp, tools/server
        "The request queue is full.",  # SGLang, managers/scheduler.py
    ],
)
def test_an_engine_that_is_full(message: str):
    assert is_engine_full(message)


@pytest.mark.parametrize("message", ["", "Loading model", "Service unavailable", "The server is overloaded"])
def test_other_503s_are_failures(message: str):
    assert not is_engine_full(message)
