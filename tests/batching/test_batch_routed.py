"""Calls with different candidates or with a cost ceiling are never merged."""

import asyncio
from typing import Any

import pytest
from doubles.virtual_time import run
from test_batch_layer import ROUTE, Scene

from gateway.core.call import Call, Candidate
from gateway.wire.openai.embeddings import EMBEDDINGS

HERE, THERE = Candidate("local", "up", b'"up"'), Candidate("local", "other", b'"other"')


def placed(scene: Scene, given: str, order: tuple[Candidate, ...], ceiling: int | None) -> Call:
    call = scene.call(given, endpoint=EMBEDDINGS)
    call.routing.route, call.routing.candidate, call.routing.candidates, call.routing.ceiling = (
        ROUTE,
        order[0],
        order,
        ceiling,
    )
    return call


@pytest.mark.parametrize(
    ("order", "ceiling", "calls"),
    [
        ((HERE, THERE), None, 2),  # the call that goes at once, and a batch of those that waited
        ((THERE, HERE), None, 4),
        ((HERE,), None, 4),
        ((HERE, THERE), 0, 4),
    ],
)
def test_calls_with_other_candidates_are_in_another_batch(order: Any, ceiling: int | None, calls: int) -> None:
    async def scenario() -> None:
        scene = Scene()
        members = [placed(scene, name, (HERE, THERE), None) for name in ("first", "second")]
        members += [placed(scene, name, order, ceiling) for name in ("third", "fourth")]
        await asyncio.gather(*map(scene.served, members))
        assert len(scene.sent) == calls

    run(scenario())
