"""Prefix hashes: a conversation's next turn contains all of its last one."""

import json

from gateway.routing.prefix_hashes import BLOCK, MIN_LENGTH, NONE, PrefixHashes, prefix_hashes
from gateway.wire.request_body import read_fields

SYSTEM = {"role": "system", "content": "s" * 4000}
ASKED = {"role": "user", "content": "u" * MIN_LENGTH}
ANSWER = {"role": "assistant", "content": "a"}
NEXT = {"role": "user", "content": "And?"}


def chat(*messages: dict[str, str], owner: str = "key", **more: object) -> PrefixHashes:
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    return prefix_hashes(read_fields(body), owner)


def test_one_turn_is_a_prefix_of_the_next():
    first, second = chat(SYSTEM, ASKED), chat(SYSTEM, ASKED, ANSWER, NEXT)
    assert first.hashes == second.hashes[:1]
    assert first.ends == [first.length] == second.ends[:1]
    assert second.ends[-1] == second.length > first.length


def test_instructions_alone_are_no_prefix():
    assert chat(SYSTEM) == chat(SYSTEM, {"role": "developer", "content": "d" * 4000}) == NONE
    assert len(chat(SYSTEM, ASKED).hashes) == 1


def test_different_instructions_tools_or_owners_never_match():
    known = set(chat(SYSTEM, ASKED).hashes)
    assert known.isdisjoint(chat({**SYSTEM, "content": "t" * 4000}, ASKED).hashes)
    assert known.isdisjoint(chat(SYSTEM, ASKED, tools=[{"type": "function"}]).hashes)
    assert known.isdisjoint(chat(SYSTEM, ASKED, owner="other").hashes)
    assert known == set(chat(SYSTEM, ASKED, temperature=1).hashes)


def test_short_requests_have_no_prefixes():
    assert chat({"role": "user", "content": "Hi"}) == NONE
    first = chat({"role": "user", "content": "Hi"}, ASKED)
    assert first.ends == [first.length]


def test_the_number_of_prefixes_is_bounded():
    many = chat(SYSTEM, *[ASKED] * 500)
    assert len(many.hashes) == len(many.ends) == 64
    assert many.ends[-1] == many.length


def test_a_prompt_that_grows_keeps_its_blocks():
    text = "p" * (3 * BLOCK)
    first = prefix_hashes(read_fields(json.dumps({"prompt": text}).encode()), "key")
    longer = prefix_hashes(read_fields(json.dumps({"prompt": text + "q" * BLOCK}).encode()), "key")
    assert first.hashes == longer.hashes[: len(first.hashes)]
    assert prefix_hashes(read_fields(b'{"prompt":"short"}'), "key") == NONE


def test_other_endpoints_and_broken_bodies_have_no_prefixes():
    assert prefix_hashes(read_fields(json.dumps({"input": "x" * 9999}).encode()), "key") == NONE
    for body in (b"", b"[", b'{"messages":"x"}', b'{"messages":[1,2]}', b"{}"):
        assert prefix_hashes(read_fields(body + b" " * MIN_LENGTH), "key") == NONE
