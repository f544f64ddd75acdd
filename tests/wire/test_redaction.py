"""Redaction of an upstream's messages."""

import pytest

from gateway.wire.http.redaction import LONGEST, Redactor


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Incorrect API key provided: sk-proj-abcdef123.", "Incorrect API key provided: ***"),
        ("key=gsk_no but gsk-abcdef123", "key=*** but ***"),
        ("Bad header: Bearer abc.def-ghi", "Bad header: Bearer ***"),
        ("bad basic dXNlcjpwYXNz", "bad basic ***"),
        ("AIzaSyA-1234567890_abcdefg expired", "*** expired"),
        ("see http://10.0.0.7:8000/v1/x?key=1, then", "see *** then"),
        ("POST https://user:pw@host/v1) failed", "POST ***) failed"),
        ("connect to 192.168.1.20:8000 refused", "connect to *** refused"),
        ("No such file: /root/models/x.safetensors", "No such file: ***"),
        ("Loaded '/home/me/model' twice", "Loaded '***' twice"),
        ("This model's maximum context length is 4096 tokens.", None),
        ("Use /v1/chat/completions with 1.2 or and/or/else", None),
    ],
)
def test_common_forms_of_secrets_and_addresses_are_masked(said: str, shown: str | None):
    assert Redactor([])(said) == (said if shown is None else shown)


def test_own_secrets_also_within_words():
    masker = Redactor(["hunter22", "engine-7.internal"])
    assert masker("xhunter22y at engine-7.internal:80") == "x***y at ***:80"


def test_a_secret_that_contains_another_is_masked_completely():
    assert Redactor(["secret", "secret-and-more"])("a secret-and-more, a secret") == "a ***, a ***"


def test_texts_too_short_to_be_secrets_mask_nothing():
    assert Redactor(["", "a", "key"])("a key") == "a key"


def test_a_message_is_bounded():
    assert len(Redactor([])("x" * 10_000)) == LONGEST
