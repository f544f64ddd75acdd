"""The beginnings of a request: a conversation's next turn contains the whole of its last one."""

import json

from gateway.core.call import CHAT, COMPLETIONS, EMBEDDINGS
from gateway.routing.prefix_hashes import BLOCK, NONE, SHORTEST, PrefixHashes, prefix_hashes

SYSTEM = {"role": "system", "content": "s" * 4000}
ASKED = {"role": "user", "content": "u" * SHORTEST}
ANSWER = {"role": "assistant", "content": "a"}
NEXT = {"role": "user", "content": "And?"}


def chat(*messages: dict[str, str], owner: str = "key", **more: object) -> PrefixHashes:
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    return prefix_hashes(body, CHAT, owner)


def test_the_whole_of_one_turn_begins_the_next():
    first, second = chat(SYSTEM, ASKED), chat(SYSTEM, ASKED, ANSWER, NEXT)
    assert first.hashes == second.hashes[:1]
    assert first.ends == [first.whole] == second.ends[:1]
    assert second.ends[-1] == second.whole > first.whole


def test_instructions_alone_are_nobodys_conversation():
    assert chat(SYSTEM) == chat(SYSTEM, {"role": "developer", "content": "d" * 4000}) == NONE
    assert len(chat(SYSTEM, ASKED).hashes) == 1


def test_other_instructions_tools_or_owners_make_other_conversations():
    known = set(chat(SYSTEM, ASKED).hashes)
    assert known.isdisjoint(chat({**SYSTEM, "content": "t" * 4000}, ASKED).hashes)
    assert known.isdisjoint(chat(SYSTEM, ASKED, tools=[{"type": "function"}]).hashes)
    assert known.isdisjoint(chat(SYSTEM, ASKED, owner="other").hashes)
    assert known == set(chat(SYSTEM, ASKED, temperature=1).hashes)


def test_what_is_short_is_not_worth_it():
    assert chat({"role": "user", "content": "Hi"}) == NONE
    first = chat({"role": "user", "content": "Hi"}, ASKED)
    assert first.ends == [first.whole]


def test_the_number_of_beginnings_is_bounded():
    many = chat(SYSTEM, *[ASKED] * 500)
    assert len(many.hashes) == len(many.ends) == 64
    assert many.ends[-1] == many.whole


def test_a_prompt_that_grows_keeps_its_blocks():
    text = "p" * (3 * BLOCK)
    first = prefix_hashes(json.dumps({"prompt": text}).encode(), COMPLETIONS, "key")
    longer = prefix_hashes(json.dumps({"prompt": text + "q" * BLOCK}).encode(), COMPLETIONS, "key")
    assert first.hashes == longer.hashes[: len(first.hashes)]
    assert prefix_hashes(b'{"prompt":"short"}', COMPLETIONS, "key") == NONE


def test_nothing_else_has_beginnings():
    assert prefix_hashes(json.dumps({"input": "x" * 9999}).encode(), EMBEDDINGS, "key") == NONE
    for body in (b"", b"[", b'{"messages":"x"}', b'{"messages":[1,2]}', b"{}"):
        assert prefix_hashes(body + b" " * SHORTEST, CHAT, "key") == NONE
