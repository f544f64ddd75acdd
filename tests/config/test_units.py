"""Durations, sizes, money and secrets."""

import contextlib
import copy
import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.units import Secret, parse_duration, parse_size, parse_usd

CANARY = "canary-0123456789"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("2s", 2.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1.5s", 1.5),
        ("0s", 0.0),
        ("30", 30.0),
        (30, 30.0),
        (0.25, 0.25),
        (1e-05, 0.00001),
        ("2 s", 2.0),
        ("2d", 172_800.0),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "2w",
        "2S",
        "-1s",
        "1h30m",
        "1e9",
        "٣s",
        "inf",
        "nan",
        float("inf"),
        True,
        "9" * 5000,
        "2s\n3s",
    ],
)
def test_anything_else_is_not_a_duration(text):
    with pytest.raises(ValueError, match=r"a duration is a number with ms, s, m, h or d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32MiB", 32 * 1024 * 1024),
        ("512KiB", 512 * 1024),
        ("1GiB", 1024**3),
        ("10B", 10),
        ("7", 7),
        (7, 7),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "32MB", "32mib", "1.5MiB", "-1", "MiB", True, "9" * 5000, "²"])
def test_anything_else_is_not_a_size(text):
    with pytest.raises(ValueError, match=r"a size is a whole number of bytes or of KiB, MiB or GiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [("0.28", 280_000_000), (0.28, 280_000_000), ("0", 0), (3, 3_000_000_000), ("0.000000001", 1)],
)
def test_money_is_exact(text, nanos):
    assert parse_usd(text) == nanos


@pytest.mark.parametrize("text", ["", "$1", "-1", "1e3", "0.0000000001", "1,5", True, "NaN"])
def test_anything_else_is_not_an_amount(text):
    with pytest.raises(ValueError, match=r"an amount is a plain decimal number of USD"):
        parse_usd(text)


@given(st.text(max_size=12))
def test_parsers_raise_nothing_but_value_error(text):
    for parse in (parse_duration, parse_size, parse_usd):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


def test_a_secret_never_prints():
    secret = Secret(CANARY)
    holder = {"nested": [secret]}
    for text in (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret:>5}",
        str(holder),
    ):
        assert CANARY not in text
        assert "***" in text
    assert secret.reveal() == CANARY


def test_a_secret_is_neither_iterable_nor_json():
    secret = Secret(CANARY)
    with pytest.raises(TypeError):
        iter(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        vars(secret)


def test_secrets_compare_by_text_and_only_with_secrets():
    assert Secret("é") == Secret("é")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))


def test_a_secret_survives_copying():
    secret = Secret(CANARY)
    assert pickle.loads(pickle.dumps(secret)) == copy.deepcopy(secret) == secret
