"""What upstreams say of usage, in every dialect, and what it costs to the nano-dollar: checked by hand.

Prices are in nano-dollars for a million tokens: a dollar for a million is 1_000_000_000 here, and a token
costs 1_000 then. Each example shows its arithmetic in nano-dollars.
"""

import json
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.tokens import Price, Tier, TokenUsage
from gateway.usage.cost import FREE, cost
from gateway.wire.openai.usage import MOST, tokens

USD = 1_000_000_000
GPT = Price(2_500_000_000, 10 * USD, 1_250_000_000)  # 2_500, 10_000 and 1_250 a token
MINI = Price(250_000_000, 2 * USD, 25_000_000)  # 250, 2_000, 25
DEEPSEEK = Price(280_000_000, 420_000_000, 28_000_000)  # 280, 420, 28
SONNET = Price(3 * USD, 15 * USD, 300_000_000, 3_750_000_000, 6 * USD)  # 3_000, 15_000, 300; 3_750, 6_000 written
FLASH = Price(300_000_000, 2_500_000_000, 30_000_000)  # 300, 2_500, 30
PRO = Price(
    1_250_000_000,
    10 * USD,
    125_000_000,
    tiers=(Tier(200_000, Price(2_500_000_000, 15 * USD, 250_000_000)),),
)  # 1_250, 10_000, 125; above 200,000 of input 2_500, 15_000, 250
PLAIN = Price(USD, 2 * USD, USD)  # no price for cached input: as input
CENT = Price(1, 1, 0)  # a millionth of a nano-dollar a token


def openai(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **more,
    }


def cached(count: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": count, **more}}


def reasoning(count: int) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": count}}


class Example(NamedTuple):
    """A usage block, a price, and what follows."""

    usage: dict[str, Any]
    price: Price
    tokens: TokenUsage
    nanos: int


EXAMPLES = {
    # 12 x 2_500 + 7 x 10_000 = 30_000 + 70_000
    "plain": Example(openai(12, 7), GPT, TokenUsage(12, 7), 100_000),
    # COST-01: 100 x 2_500 + 900 x 1_250 = 250_000 + 1_125_000
    "cached": Example(openai(1000, 0, **cached(900)), GPT, TokenUsage(1000, 0, 900), 1_375_000),
    # 500 x 1_000 + 500 x 1_000 + 10 x 2_000: cached without a price of its own costs as input
    "cached, no price for it": Example(openai(1000, 10, **cached(500)), PLAIN, TokenUsage(1000, 10, 500), 1_020_000),
    # all of it: 2048 x 25 + 1 x 2_000 = 51_200 + 2_000
    "all cached": Example(openai(2048, 1, **cached(2048)), MINI, TokenUsage(2048, 1, 2048), 53_200),
    # COST-04: 10 x 250 + 500 x 2_000; the 400 are among the 500
    "reasoning": Example(openai(10, 500, **reasoning(400)), MINI, TokenUsage(10, 500, 0, 400), 1_002_500),
    # (1500 - 1024) x 250 + 1024 x 25 + 300 x 2_000 = 119_000 + 25_600 + 600_000
    "cached and reasoning": Example(
        openai(1500, 300, **cached(1024), **reasoning(256)), MINI, TokenUsage(1500, 300, 1024, 256), 744_600
    ),
    # 7 x 250 + 3 x 2_000
    "details null": Example(
        openai(7, 3, prompt_tokens_details=None, completion_tokens_details=None),
        MINI,
        TokenUsage(7, 3),
        7_750,
    ),
    # gpt-5.6 and later charge for writes: 1000 x 3_000 + 500 x 300 + 2000 x 3_750 + 100 x 15_000
    "openai's writes": Example(
        openai(3500, 100, **cached(500, cache_write_tokens=2000)),
        SONNET,
        TokenUsage(3500, 100, 500, 0, 2000),
        3_000_000 + 150_000 + 7_500_000 + 1_500_000,
    ),
    # vLLM: 64 x 0 + 16 x 0
    "vllm, free": Example(openai(64, 16), FREE, TokenUsage(64, 16), 0),
    # 40 x 280 + 960 x 28 + 20 x 420 = 11_200 + 26_880 + 8_400
    "deepseek": Example(
        openai(1000, 20, prompt_cache_hit_tokens=960, prompt_cache_miss_tokens=40),
        DEEPSEEK,
        TokenUsage(1000, 20, 960),
        46_480,
    ),
    # both names for the same tokens: 100 x 280 + 900 x 28 + 5 x 420
    "deepseek, twice": Example(
        openai(1000, 5, prompt_cache_hit_tokens=900, prompt_cache_miss_tokens=100, **cached(900)),
        DEEPSEEK,
        TokenUsage(1000, 5, 900),
        28_000 + 25_200 + 2_100,
    ),
    # the halves alone: 300 x 280 + 700 x 28
    "deepseek, halves": Example(
        {"prompt_cache_hit_tokens": 700, "prompt_cache_miss_tokens": 300},
        DEEPSEEK,
        TokenUsage(1000, 0, 700),
        84_000 + 19_600,
    ),
    # deepseek-reasoner: 50 x 280 + 900 x 420
    "deepseek reasons": Example(openai(50, 900, **reasoning(850)), DEEPSEEK, TokenUsage(50, 900, 0, 850), 392_000),
    # 21 x 3_000 + 393 x 15_000 = 63_000 + 5_895_000
    "anthropic": Example(
        {
            "input_tokens": 21,
            "output_tokens": 393,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        },
        SONNET,
        TokenUsage(21, 393),
        5_958_000,
    ),
    # beside: 50 x 3_000 + 100_000 x 300 + 200 x 15_000 = 150_000 + 30_000_000 + 3_000_000
    "anthropic reads": Example(
        {"input_tokens": 50, "output_tokens": 200, "cache_read_input_tokens": 100_000},
        SONNET,
        TokenUsage(100_050, 200, 100_000),
        33_150_000,
    ),
    # 50 x 3_000 + 2_000 x 3_750 + 10 x 15_000 = 150_000 + 7_500_000 + 150_000
    "anthropic writes": Example(
        {"input_tokens": 50, "output_tokens": 10, "cache_creation_input_tokens": 2000},
        SONNET,
        TokenUsage(2050, 10, 0, 0, 2000),
        7_800_000,
    ),
    # 10 x 3_000 + 800 x 300 + (456 x 3_750 + 100 x 6_000) + 5 x 15_000
    "anthropic writes for an hour": Example(
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 556,
            "cache_creation": {"ephemeral_5m_input_tokens": 456, "ephemeral_1h_input_tokens": 100},
        },
        SONNET,
        TokenUsage(1366, 5, 800, 0, 556, 100),
        30_000 + 240_000 + 1_710_000 + 600_000 + 75_000,
    ),
    # written without a price for it: (1_000 + 500) x 1_000 + 3 x 2_000
    "writes, no price for them": Example(
        {"input_tokens": 1000, "output_tokens": 3, "cache_creation_input_tokens": 500},
        PLAIN,
        TokenUsage(1500, 3, 0, 0, 500),
        1_506_000,
    ),
    # thinking is among the output: 5 x 3_000 + 1_000 x 15_000
    "anthropic thinks": Example(
        {"input_tokens": 5, "output_tokens": 1000, "output_tokens_details": {"thinking_tokens": 900}},
        SONNET,
        TokenUsage(5, 1000, 0, 900),
        15_015_000,
    ),
    # a proxy in front of Anthropic: among prompt_tokens. 100 x 3_000 + 900 x 300
    "anthropic's name beside prompt_tokens": Example(
        openai(1000, 0, cache_read_input_tokens=900), SONNET, TokenUsage(1000, 0, 900), 570_000
    ),
    # the same with writes: 100 x 3_000 + 700 x 300 + 200 x 3_750 + 1 x 15_000
    "and its writes": Example(
        openai(1000, 1, cache_read_input_tokens=700, cache_creation_input_tokens=200),
        SONNET,
        TokenUsage(1000, 1, 700, 0, 200),
        300_000 + 210_000 + 750_000 + 15_000,
    ),
    # OpenAI's newer names: 300 x 250 + 700 x 25 + 40 x 2_000
    "responses": Example(
        {
            "input_tokens": 1000,
            "input_tokens_details": {"cached_tokens": 700},
            "output_tokens": 40,
            "output_tokens_details": {"reasoning_tokens": 30},
        },
        MINI,
        TokenUsage(1000, 40, 700, 30),
        75_000 + 17_500 + 80_000,
    ),
    # 400 x 300 + 600 x 30 + (20 + 180) x 2_500: thoughts beside candidates
    "gemini": Example(
        {
            "promptTokenCount": 1000,
            "cachedContentTokenCount": 600,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 180,
            "totalTokenCount": 1200,
        },
        FLASH,
        TokenUsage(1000, 200, 600, 180),
        120_000 + 18_000 + 500_000,
    ),
    # its OpenAI layer: the thoughts are in the total only. 8 x 300 + (12 + 80) x 2_500
    "gemini's openai layer": Example(
        {"prompt_tokens": 8, "completion_tokens": 12, "total_tokens": 100},
        FLASH,
        TokenUsage(8, 92, 0, 80),
        232_400,
    ),
    # xAI: reasoning beside completion, told twice. 10 x 300 + (5 + 85) x 2_500
    "xai": Example(
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 100, **reasoning(85)},
        FLASH,
        TokenUsage(10, 90, 0, 85),
        228_000,
    ),
    # up to the tier: 200_000 x 1_250 + 10 x 10_000
    "at the tier": Example(openai(200_000, 10), PRO, TokenUsage(200_000, 10), 250_100_000),
    # above it all of it is dearer: 100_001 x 2_500 + 100_000 x 250 + 10 x 15_000
    "above the tier": Example(
        openai(200_001, 10, **cached(100_000)), PRO, TokenUsage(200_001, 10, 100_000), 275_152_500
    ),
    # 1 x 1 millionth: rounded up, once for the whole of it
    "a fraction": Example(openai(1, 0), CENT, TokenUsage(1), 1),
    # (999_999 + 2) millionths are a whole one and a little
    "little more than one": Example(openai(999_999, 2), CENT, TokenUsage(999_999, 2), 2),
    "nothing": Example(openai(0, 0), GPT, TokenUsage(), 0),
    # 10^9 x 2_500 + 10^9 x 10_000: a Python int overflows nowhere
    "huge": Example(openai(MOST, MOST), GPT, TokenUsage(MOST, MOST), 12_500_000_000_000),
    # embeddings: 1234 x 250
    "embeddings": Example({"prompt_tokens": 1234, "total_tokens": 1234}, MINI, TokenUsage(1234), 308_500),
    # of some only the total is told: 10 x 250
    "embeddings, the total": Example({"total_tokens": 10}, MINI, TokenUsage(10), 2_500),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_usage_and_cost_to_the_nano_dollar(name: str):
    example = EXAMPLES[name]
    read = tokens(msgspec.Raw(json.dumps(example.usage).encode()))
    assert read == example.tokens
    assert cost(read, example.price) == example.nanos


def test_there_are_thirty_of_them():
    assert len(EXAMPLES) >= 30


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (b"{}", None),
        (b'{"prompt_tokens":7,"completion_tokens":null,"prompt_tokens_details":{}}', TokenUsage(7)),
        (b'{"prompt_tokens":-500,"completion_tokens":99999999999999}', TokenUsage(0, MOST)),
        (b'{"prompt_tokens":100.0,"completion_tokens":5}', TokenUsage(100, 5)),
        (b'{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":[]}', TokenUsage(5, 1)),
        (b'{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":"4"}}', TokenUsage(5)),
        (b'{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-4}}', TokenUsage(5)),
        (b'{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":50}}', TokenUsage(5, 0, 5)),
        (b'{"prompt_tokens":5,"cache_creation_input_tokens":50,"cached_tokens":3}',
         TokenUsage(5, 0, 3, 0, 2)),
        (b'{"input_tokens":-5,"cache_read_input_tokens":-9,"output_tokens":3}', TokenUsage(0, 3)),
        (b'{"input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":7}}',
         TokenUsage(8, 0, 0, 0, 7, 7)),
        (b'{"prompt_tokens":10,"completion_tokens":5,"total_tokens":90,"completion_tokens_details":'
         b'{"reasoning_tokens":3}}', TokenUsage(10, 5, 0, 3)),  # larger, but not for reasoning
        (b'{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":85}}',
         TokenUsage(10, 90, 0, 85)),  # can be no part of 5
        (b'{"prompt_tokens":10,"completion_tokens":5,"total_tokens":2}', TokenUsage(10, 5)),
        (b'{"prompt_tokens":10,"completion_tokens":5,"total_tokens":1065,"cache_read_input_tokens":1000,'
         b'"cache_creation_input_tokens":50}', TokenUsage(1060, 5, 1000, 0, 50)),
    ],
)  # fmt: skip
def test_odd_counts_are_neither_credited_nor_believed(usage: bytes, read: TokenUsage):
    assert tokens(msgspec.Raw(usage)) == read


@pytest.mark.parametrize(
    "usage",
    [
        b"null",
        b"[]",
        b'"many"',
        b"{",
        b'{"prompt_tokens":"5"}',
        b'{"prompt_tokens":true,"completion_tokens":3}',
        b'{"prompt_tokens":2.5,"completion_tokens":3}',
        b'{"prompt_tokens":1e300}',
        b'{"prompt_tokens":{"much":1}}',
        b'{"prompt_tokens":3,"x":' + b"[" * 100_000,
    ],
)
def test_a_total_that_is_not_a_number_makes_the_usage_unknown(usage: bytes):
    assert tokens(msgspec.Raw(usage)) is None


VALUES = st.one_of(st.none(), st.integers(-10, 10**12), st.floats(), st.text(max_size=3), st.booleans(), st.just([]))
DETAILS = st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens", "cache_write_tokens"]), VALUES)
NAMES = [
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details",
    "completion_tokens_details", "input_tokens", "output_tokens", "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "prompt_cache_hit_tokens",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(NAMES), st.one_of(VALUES, DETAILS)))
def test_any_usage_has_a_possible_cost(usage: dict[str, Any]):
    read = tokens(msgspec.Raw(json.dumps(usage).encode()))
    if read is None:
        return
    assert min(read) >= 0
    assert max(read) <= MOST
    assert read.cached_input + read.cache_write <= read.input
    assert read.cache_write_long <= read.cache_write
    assert read.reasoning <= read.output
    assert 0 <= cost(read, SONNET) <= cost(TokenUsage(read.input, read.output), Price(*[15 * USD] * 3))
