"""Prefix cache hits of 40 conversations of 6 turns with a long system prompt, on two replicas."""

import json
from itertools import cycle
from random import Random

import pytest
from prefix_engine import PrefixEngine
from routing_scene import NOW, RoutingScene, candidate

from gateway.core.call import Call
from gateway.routing.router import RoutingRule

CONVERSATIONS, TURNS = 40, 6
A, B = candidate("a"), candidate("b")
SYSTEM = list(range(512))
ASKED, ANSWERED = 1000, 200
BLOCKS = 7500
"""Cache of one replica: about half of all conversations, so that one cache does not hold them all."""


class Talk:
    """A conversation with a document in every turn."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.said = [("system", SYSTEM)]

    def turn(self) -> tuple[bytes, list[int]]:
        """The next request: its body, and its tokens as numbers."""
        if len(self.said) > 1:
            self._say("assistant", ANSWERED)
        self._say("user", ASKED)
        messages = [{"role": role, "content": repr(text)} for role, text in self.said]
        return json.dumps({"model": "m", "messages": messages}).encode(), [n for _, text in self.said for n in text]

    def _say(self, role: str, tokens: int) -> None:
        self.said.append((role, [self.rng.randrange(10**6) for _ in range(tokens)]))


def traffic(seed: int) -> list[tuple[bytes, list[int]]]:
    """All conversations interleaved: each turn of all of them, in random order, before the next turn."""
    rng = Random(seed)
    talks = [Talk(rng) for _ in range(CONVERSATIONS)]
    requests = []
    for _ in range(TURNS):
        rng.shuffle(talks)
        requests += [talk.turn() for talk in talks]
    return requests


def round_robin(requests: list[tuple[bytes, list[int]]]) -> list[PrefixEngine]:
    engines = [PrefixEngine(BLOCKS), PrefixEngine(BLOCKS)]
    for engine, (_, tokens) in zip(cycle(engines), requests, strict=False):
        engine.prefill(tokens)
    return engines


def routed(requests: list[tuple[bytes, list[int]]], rule: RoutingRule, under_way: int) -> list[PrefixEngine]:
    """A constant number of calls in flight."""
    scene = RoutingScene(rule, A, B, permits=16)
    engines = {"a": PrefixEngine(BLOCKS), "b": PrefixEngine(BLOCKS)}
    going: list[Call] = []
    for body, tokens in requests:
        if len(going) >= under_way:
            done = going.pop(0)
            assert done.routing.candidate is not None
            scene.queues[done.routing.candidate.upstream].free += 1
            scene.answered(done)
        call = scene.routed(scene.call(body), NOW)
        assert call.routing.candidate is not None
        scene.queues[call.routing.candidate.upstream].free -= 1
        engines[call.routing.candidate.upstream].prefill(tokens)
        going.append(call)
    return list(engines.values())


def hits(engines: list[PrefixEngine]) -> int:
    return sum(one.hits for one in engines)


@pytest.mark.parametrize(
    ("kind", "under_way", "seed"), [("least_loaded", 8, 1), ("least_loaded", 1, 2), ("cheapest", 8, 3)]
)
def test_conversations_hit_their_cached_prefixes_and_both_replicas_work(kind: str, under_way: int, seed: int) -> None:
    requests = traffic(seed)
    plain, kept = round_robin(requests), routed(requests, RoutingRule(kind), under_way)
    assert sum(one.calls for one in kept) == CONVERSATIONS * TURNS
    assert hits(kept) >= 1.5 * hits(plain)
    assert max(one.calls for one in kept) <= 1.3 * CONVERSATIONS * TURNS / 2


def test_the_fake_engine_counts_whole_cached_blocks() -> None:
    engine = PrefixEngine(100)
    engine.prefill(list(range(64)))
    assert engine.hits == 0
    engine.prefill(list(range(64)))
    assert engine.hits == 48  # never all of it
    engine.prefill([*range(40), *range(1000, 1024)])
    assert engine.hits == 48 + 32
    small = PrefixEngine(2)
    small.prefill(list(range(64)))
    small.prefill(list(range(64)))
    assert small.hits == 32
