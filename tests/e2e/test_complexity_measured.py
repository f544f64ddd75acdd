"""A small table of right and wrong answers through a real gateway: quality and dollars are those promised."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.complexity_served import by_doubt, by_score, dollars, serve
from gateway.cli.router.dataset import LabelledPrompt
from gateway.routing.cascade.answer_checks import CheckPolicy
from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import dump, shipped

CHECKS = CheckPolicy(("arithmetic",))

HARD = (
    "Design a distributed rate limiter for {} regions, compare token buckets with sliding windows, explain "
    "which consistency guarantees each of them needs when a region is cut off, and how to test it."
)


def table() -> list[LabelledPrompt]:
    """Long questions that only the strong model gets right, short ones that both do, in a fixed mix."""
    rows = []
    for number in range(300):
        hard = number * 7 % 10 < 3
        text = HARD.format(number) if hard else f"What is the capital of country {number}?"
        rows.append(LabelledPrompt(Prompt(text), float(not hard), 1.0, "1 + 1 = 3" if hard else "1 + 1 = 2"))
    return rows


@pytest.mark.parametrize("share", [0, 0.3, 1])
async def test_the_share_buys_what_the_table_says(share: float, tmp_path: Path) -> None:
    rows = table()
    scorer = PromptScorer(shipped())
    scores = sorted(scorer.score(row.prompt) for row in rows)
    file = tmp_path / "weights.json"
    file.write_bytes(dump(replace(shipped(), percentiles=[scores[at * 299 // 100] for at in range(101)])))
    measured = await serve(rows, {"complexity": {"strong_share": share, "weights": str(file)}})
    promised = by_score(rows, scorer, share)
    assert promised.holds(measured), (measured, promised)
    if share == 0.3:
        assert measured.right > 0.95  # at random it would be 0.79


async def test_a_cascade_pays_for_both_answers_where_the_first_is_doubtful() -> None:
    rows = table()
    model = {
        "complexity": {"strong_share": 0},
        "cascade": {"enabled": True, "checks": list(CHECKS.checks)},
    }
    measured = await serve(rows, model)
    assert (measured.right, measured.strong) == (1.0, 0.3)
    paid = sum(dollars(row, "cheap") + (not row.weak) * dollars(row, "strong") for row in rows)
    assert measured.dollars == pytest.approx(paid / len(rows) * 1000)
    assert by_doubt(rows, CHECKS).holds(measured)
