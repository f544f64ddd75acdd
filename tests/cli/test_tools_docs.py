"""The pages of `top`, `bench` and `import-litellm` show what the commands print and take."""

import argparse
import io
import re
from pathlib import Path

from kit.pages import ROOT, blocks, table
from rich.console import Console

from gateway.cli.bench.options import describe
from gateway.cli.import_litellm.run import run
from gateway.cli.top.samples import EMPTY, scraped
from gateway.cli.top.screen import screen
from gateway.cli.top.view_model import AdminAnswers, UpstreamView, UsedRow, view_model

DOCS = ROOT / "docs"
SCRAPE = """\
# TYPE sluice_requests counter
sluice_requests_total{model="small",outcome="ok"} 1.0
# TYPE sluice_batch_size histogram
sluice_batch_size_count{model="small"} 1.0
# TYPE sluice_limit_rejections counter
sluice_limit_rejections_total{key="nightly",limit="rpm"} 1.0
"""


def test_the_screen_of_the_page_has_the_columns_of_the_real_one() -> None:
    shown, _comparison = blocks(DOCS / "monitoring.md", "text")
    usage = [UsedRow("2026-11-19", "team-a", "small", 1, 1, 1, "0")]
    answers = AdminAnswers(scraped(SCRAPE), "ready", {"local": UpstreamView("up", 0, 0, "closed")}, usage, "")
    console = Console(file=io.StringIO(), width=80)
    console.print(screen(view_model(answers, EMPTY, 1.0, EMPTY), "http://h", "the last 1 s", 80))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    titles = [line.strip() for line in drawn.splitlines() if re.fullmatch(r"[a-z ]+", line)]
    heads = [line.split() for line in drawn.splitlines() if re.match(r"(outcome|upstream|model|key) ", line)]
    assert len(heads) == 6
    assert [line.split() for line in shown.splitlines() if line.split() in heads] == heads
    assert {"requests", "upstreams", "models", "batches", "refused by limits", "today"} <= {*titles}
    assert {*titles} <= {*shown.splitlines()}


def test_the_table_of_options_is_that_of_the_command() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    describe(parser)
    known = {one for action in parser._actions for one in action.option_strings} - {
        "--stream",
        "--model",
        "--key",
    }
    rows = table(DOCS / "monitoring.md", "option | default | meaning")
    assert {row[0].strip("`").split()[0] for row in rows} == known
    defaults = {row[0].strip("`").split()[0]: row[1].strip("`").removesuffix("s") for row in rows}
    for name in ("concurrency", "max_tokens", "endpoint"):
        assert str(parser.get_default(name)) == defaults[f"--{name.replace('_', '-')}"]


def test_the_import_of_the_page_is_a_real_one(tmp_path: Path) -> None:
    page = DOCS / "coming-from-litellm.md"
    litellm, notes = blocks(page, "text")
    converted, _keys = blocks(page, "yaml")
    source = tmp_path / "config.yaml"
    source.write_text(litellm, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    assert run(str(source), None, out=out, err=err) == 0
    assert (out.getvalue(), err.getvalue()) == (converted, notes)
