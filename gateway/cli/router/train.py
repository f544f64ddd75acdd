"""`sluice train-router`: trains the shipped weights, and evaluates routers, on public tables."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from gateway.cli.router import dataset, evaluation, report
from gateway.cli.router.dataset import LabelledPrompt, Table
from gateway.cli.router.fit import SHIPPED, fit
from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.weights import Weights, dump

SOURCE: Final = (
    "RouteLLM's correctness tables (github.com/lm-sys/RouteLLM, commit 0b64fda, Apache-2.0); "
    "FusionBench's table (github.com/ulab-uiuc/LLMRouter, MIT)"
)


def run(
    folder: Path,
    into: Path | None,
    first: Path,
    page: Path | None,
    litellm: str | None,
    out: TextIO,
    err: TextIO,
) -> int:
    """Write the weights to a file, or evaluate and print the figures. Returns the exit status."""
    try:
        tables = dataset.tables(folder)
        if into is not None:
            into.write_bytes(dump(shipped(tables, everyday(first))))
            print(f"weights: {into}", file=out)
        if into is None or page is not None:
            text = figures(tables, litellm)
            print(text, file=out)
            if page is not None:
                report.write(page, text)
    except (dataset.TablesMissing, report.NoMarkers, subprocess.CalledProcessError) as error:
        print(f"sluice train-router: {error}", file=err)
        return 2
    return 0


def everyday(path: Path) -> list[Prompt]:
    """Return the prompts of a file: one a line, but for empty ones, `#` comments and `[titles]`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Prompt(line) for line in lines if line and line[0] not in "#["]


def shipped(tables: Sequence[Table], first: Sequence[Prompt]) -> Weights:
    """Return the package's weights, trained on all tables, with provenance and transfer figures.

    A route that uses them begins with the scores of the prompts `first`.
    """
    provenance: dict[str, str | int | float] = {
        "source": SOURCE,
        "recipe": "signed ridge of the gain towards weights written by hand; no words; sluice train-router",
        "rows_of_each_source": evaluation.PER_SOURCE,
        "percentiles": f"of {len(first)} everyday prompts",
    }
    for table in tables:
        provenance[f"rows of {table.name}"] = len(table.rows)
        provenance[f"sha256 of {table.name}"] = _fingerprint(table.rows)
        provenance[f"apgr without {table.name}"] = round(evaluation.transfer_apgr(table, tables), 4)
    return fit(evaluation.training_rows(tables), SHIPPED, provenance, first)


def figures(tables: Sequence[Table], litellm: str | None) -> str:
    """Return the tables of the page; `litellm` is a Python with litellm installed, to evaluate it too."""
    baselines: list[tuple[str, evaluation.Scores]] = []
    if litellm:
        first, second, version = _litellm_scores(litellm, [row for table in tables for row in table.rows])
        baselines = [
            (f"LiteLLM {version} heuristic", _from_table(first)),
            (f"LiteLLM {version} heuristic_v2", _from_table(second)),
        ]
    parts = [
        report.table(f"{table.name}, {len(table.rows):,} rows:", evaluation.evaluate(table, tables, baselines))
        for table in tables
    ]
    compared = report.strengths([table.name for table in tables], evaluation.strengths(tables))
    return "\n".join([*parts, f"How far labels move the weights, APGR without the table:\n\n{compared}"])


def _from_table(scores: Mapping[str, float]) -> evaluation.Scores:
    return lambda rows: [scores[row.prompt.text] for row in rows]


def _litellm_scores(python: str, rows: Sequence[LabelledPrompt]) -> tuple[dict[str, float], dict[str, float], str]:
    """Return LiteLLM's two scores of every prompt, and its version."""
    prompts = [*dict.fromkeys(row.prompt.text for row in rows)]
    done = subprocess.run(
        [python, str(Path(__file__).with_name("litellm_scores.py"))],
        input=json.dumps(prompts),
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    output = json.loads(done.stdout)
    return (
        dict(zip(prompts, output["first"], strict=True)),
        dict(zip(prompts, output["second"], strict=True)),
        output["version"],
    )


def _fingerprint(rows: Sequence[LabelledPrompt]) -> str:
    """Return a hash of prompts and labels that does not depend on their order."""
    lines = sorted(json.dumps([row.prompt.text, row.weak, row.strong]) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
