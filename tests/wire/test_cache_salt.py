"""A salt of the gateway's own in a request for vLLM."""

import json

import pytest

from gateway.wire.json.members import edited
from gateway.wire.openai.cache_salt import salt_edits, salt_of

SALT = b'"salt"'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"a":1.0}', b'{"cache_salt":"salt","a":1.0}'),
        (b' {\n "a":1}', b' {"cache_salt":"salt",\n "a":1}'),
        (b'{"cache_salt":"mine","a":1}', b'{"cache_salt":"salt","a":1}'),
        (b'{"a":1,"cache_salt" : null}', b'{"a":1,"cache_salt" : "salt"}'),
        (
            b'{"cache_sal\\u0074":"mine","cache_salt":{"a":[1]}}',
            b'{"cache_sal\\u0074":"salt","cache_salt":"salt"}',
        ),
        (b'{"a":{"cache_salt":"x"}}', b'{"cache_salt":"salt","a":{"cache_salt":"x"}}'),
        (b'{"a":"\\"cache_salt\\":1"}', b'{"cache_salt":"salt","a":"\\"cache_salt\\":1"}'),
    ],
)
def test_the_salt_is_set_once_and_nothing_else_changes(before: bytes, after: bytes) -> None:
    assert b"".join(edited(before, salt_edits(before, SALT))) == after


def test_a_tenants_salt_is_always_the_same_and_not_its_name() -> None:
    assert salt_of("team-a") == salt_of("team-a") != salt_of("team-b")
    assert len(json.loads(salt_of("é"))) == 32
