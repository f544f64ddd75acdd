"""`sluice train-router`, `calibrate` and `explain`, on small made-up tables."""

import sys
from pathlib import Path

import pytest
from synthetic import log, prompts, tables

from gateway.cli.main import main
from gateway.cli.router import evaluation as protocol
from gateway.cli.router import report
from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import parse, shipped


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MMLU_LABELS", 100)
    monkeypatch.setattr(protocol, "GSM8K_LABELS", 60)
    monkeypatch.setattr(protocol, "DRAWS", 2)


def test_training_twice_writes_the_same_file_with_its_provenance(tmp_path, capsys):
    folder = tables(tmp_path)
    for name in ("one.json", "two.json"):
        assert main(["train-router", "--tables", str(folder), "--out", str(tmp_path / name)]) == 0
    one = (tmp_path / "one.json").read_bytes()
    assert one == (tmp_path / "two.json").read_bytes()
    weights = parse(one)
    assert (weights.provenance["mmlu_rows"], weights.provenance["gsm8k_rows"]) == (299, 149)  # the clean ones
    assert weights.grams == {}
    assert "one.json" in capsys.readouterr().out


def test_the_figures_go_into_a_page_between_its_marks(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nstale\n{report.END}\nafter\n", encoding="utf-8")
    assert main(["train-router", "--tables", str(tables(tmp_path)), "--report", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    figures = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    found = {(row[0], row[1]): float(row[2].split()[0]) for row in figures if row[2][:1].isdigit()}
    assert ("prompt length", "none") in found
    assert found["cascade", "60 of GSM8K"] > 0.6  # a wrong sum tells
    assert found["calibrated", "100 of MMLU"] > 0.55
    assert text.split(report.BEGIN)[1].split(report.END)[0].strip() in capsys.readouterr().out


def test_another_router_is_measured_on_the_same_rows(tmp_path, capsys):
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "given = json.load(sys.stdin)\n"
        "longest = [len(one) for one in given]\n"
        "json.dump({'version': '9', 'first': longest, 'second': [0] * len(given)}, sys.stdout)\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    assert main(["train-router", "--tables", str(tables(tmp_path)), "--litellm", str(python)]) == 0
    lines = capsys.readouterr().out.splitlines()
    length, theirs = (
        [line.split(" | ", 2)[2] for line in lines if name in line] for name in ("| prompt", "9 heuristic |")
    )
    assert theirs == length
    assert len(theirs) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tables", "nowhere"], "nowhere has no mmlu/mmlu_*.csv"),
        (["--tables", "TABLES", "--report", "page.md"], "page.md has no line"),
        (["--tables", "TABLES", "--litellm", sys.executable], "returned non-zero"),
    ],
)
def test_what_is_missing_is_said(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text("no marks", encoding="utf-8")
    folder = str(tables(tmp_path))
    assert main(["train-router", *[folder if one == "TABLES" else one for one in arguments]]) == 2
    assert said in capsys.readouterr().err


def test_a_log_on_which_words_tell_is_installed(tmp_path, capsys):
    file = tmp_path / "own.json"
    assert main(["calibrate", str(log(tmp_path / "log.jsonl", prompts(500, 7))), "--install", str(file)]) == 0
    told = capsys.readouterr().out
    assert "calibrated      APGR 0." in told
    assert "prompt length   APGR 0." in told
    scorer = PromptScorer(parse(file.read_bytes()))
    assert scorer.score(Prompt("violet stone")) > scorer.score(Prompt("apple stone"))
    assert scorer.weights.provenance["rows"] == 500
    assert main(["explain", "violet stone", "--weights", str(file)]) == 0
    assert '"violet"' in capsys.readouterr().out


def test_what_does_not_beat_length_is_not_installed(tmp_path, capsys):
    file = tmp_path / "own.json"
    noise = log(tmp_path / "log.jsonl", prompts(300, 8, telling=False))
    assert main(["calibrate", str(noise), "--install", str(file)]) == 1
    assert "not installed" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (prompts(99, 9), "99 prompts are too few"),
        ([(text, True, False) for text, _, _ in prompts(120, 9)], "nothing to route for"),
    ],
)
def test_a_log_that_cannot_teach_is_refused(rows, said, tmp_path, capsys):
    assert main(["calibrate", str(log(tmp_path / "log.jsonl", rows))]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "log.jsonl:2: Input data was truncated"),
        ('{"prompt": "x", "weak_ok": true}', "log.jsonl:2: Object missing required field `strong_ok`"),
        ('{"prompt": "x", "weak_ok": 2, "strong_ok": 1}', "log.jsonl:2: weak_ok and strong_ok are"),
        ('{"weak_ok": true, "strong_ok": true}', "log.jsonl:2: neither a `prompt` nor `messages`"),
    ],
)
def test_a_line_that_is_wrong_is_named(line, said, tmp_path, capsys):
    file = tmp_path / "log.jsonl"
    file.write_text('{"prompt": "x", "weak_ok": 0.5, "strong_ok": true}\n' + line + "\n", encoding="utf-8")
    assert main(["calibrate", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_explain_tells_tier_score_and_reasons(capsys):
    prompt = "Prove that there are infinitely many primes, compare three proofs, derive a bound for each"
    assert main(["explain", prompt]) == 0
    told = capsys.readouterr().out
    score = PromptScorer(shipped()).score(Prompt(prompt))
    assert told.startswith("tier        ")
    assert f"score       {score:+.4f}" in told
    assert "reasoning words" in told
    assert main(["explain", prompt, "--share", "1"]) == 0
    assert capsys.readouterr().out.startswith("tier        strong")
    assert main(["explain", prompt, "--share", "0"]) == 0
    assert capsys.readouterr().out.startswith("tier        cheap")


def test_explain_says_what_is_wrong_with_weights(tmp_path, capsys):
    file = tmp_path / "weights.json"
    file.write_text("{}", encoding="utf-8")
    assert main(["explain", "x", "--weights", str(file)]) == 2
    assert "this is no weights file" in capsys.readouterr().err


def test_without_numpy_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["calibrate", "log.jsonl"]) == 2
    assert "sluice-gateway[train]" in capsys.readouterr().err
