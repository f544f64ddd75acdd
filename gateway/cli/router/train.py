"""`sluice train-router`: the shipped weights and the measured figures, from RouteLLM's public tables."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from gateway.cli.router import dataset as tables
from gateway.cli.router import evaluation as protocol
from gateway.cli.router import report
from gateway.cli.router.dataset import LabelledPrompt
from gateway.cli.router.fit import SHIPPED, fit
from gateway.routing.complexity.weights import Weights, dump

SOURCE: Final = "RouteLLM's correctness tables (github.com/lm-sys/RouteLLM, commit 0b64fda, Apache-2.0)"


def run(
    folder: Path, into: Path | None, page: Path | None, litellm: str | None, out: TextIO, err: TextIO
) -> int:
    """Write the weights into a file, or measure and print the figures, into a page too. The exit status."""
    try:
        mmlu, gsm8k = tables.mmlu(folder), tables.gsm8k(folder)
        if into is not None:
            into.write_bytes(dump(shipped(mmlu, gsm8k)))
            print(f"weights: {into}", file=out)
        if into is None or page is not None:
            text = figures(mmlu, gsm8k, litellm)
            print(text, file=out)
            if page is not None:
                report.write(page, text)
    except (tables.NoTables, report.NoMarks, subprocess.CalledProcessError) as error:
        print(f"sluice train-router: {error}", file=err)
        return 2
    return 0


def shipped(mmlu: Sequence[LabelledPrompt], gsm8k: Sequence[LabelledPrompt]) -> Weights:
    """The package's weights: learned from both tables, their provenance and held-out figures within."""
    provenance: dict[str, str | int | float] = {
        "source": SOURCE,
        "models": f"{tables.WEAK} (cheap), {tables.STRONG} (strong)",
        "recipe": "ridge of the gain towards signs written by hand; no words; sluice train-router",
        "mmlu_rows": len(mmlu),
        "mmlu_sha256": _fingerprint(mmlu),
        "gsm8k_rows": len(gsm8k),
        "gsm8k_sha256": _fingerprint(gsm8k),
        "apgr_mmlu_trained_without_it": round(protocol.held_out(mmlu, gsm8k), 4),
        "apgr_gsm8k_trained_without_it": round(protocol.held_out(gsm8k, mmlu), 4),
    }
    return fit(tables.draw([*mmlu, *gsm8k]), SHIPPED, provenance)


def figures(mmlu: Sequence[LabelledPrompt], gsm8k: Sequence[LabelledPrompt], litellm: str | None) -> str:
    """Both tables of the page; `litellm` is a Python that has it installed, to run it on the same rows."""
    first, second, told = _theirs(litellm, [*mmlu, *gsm8k]) if litellm else ({}, {}, "")
    theirs = [
        (name, _looked_up(known))
        for name, known in ((f"LiteLLM {told} heuristic", first), (f"LiteLLM {told} heuristic_v2", second))
        if known
    ]
    parts = [
        report.table(
            f"MMLU, {len(mmlu):,} rows, measured on all but the {protocol.MMLU_LABELS:,} that were drawn:",
            protocol.mmlu(mmlu, gsm8k, theirs),
        ),
        report.table(
            f"GSM8K, {len(gsm8k):,} rows; where {protocol.GSM8K_LABELS} were drawn, measured on the others:",
            protocol.gsm8k(gsm8k, mmlu, theirs),
        ),
    ]
    return "\n".join(parts)


def _looked_up(known: Mapping[str, float]) -> protocol.Scores:
    return lambda rows: [known[row.prompt.text] for row in rows]


def _theirs(python: str, rows: Sequence[LabelledPrompt]) -> tuple[dict[str, float], dict[str, float], str]:
    """LiteLLM's two scores of every prompt, and its version."""
    prompts = [row.prompt.text for row in rows]
    done = subprocess.run(
        [python, str(Path(__file__).with_name("litellm_scores.py"))],
        input=json.dumps(prompts),
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return (
        dict(zip(prompts, found["first"], strict=True)),
        dict(zip(prompts, found["second"], strict=True)),
        found["version"],
    )


def _fingerprint(rows: Sequence[LabelledPrompt]) -> str:
    """A hash of prompts and labels, whatever their order."""
    lines = sorted(json.dumps([row.prompt.text, row.weak, row.strong]) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
