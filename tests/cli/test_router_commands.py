"""`sluice train-router`, `calibrate` and `explain`, on small synthetic tables."""

import re
import sys
from pathlib import Path

import pytest
from synthetic import log, prompts, tables

from gateway.cli.main import main
from gateway.cli.router import evaluation, report
from gateway.routing.complexity.features import Prompt
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import dump, parse, shipped


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LABELS", {"MMLU": 100, "GSM8K": 60, "FusionBench": 60})
    monkeypatch.setattr(evaluation, "SPREADS", (0.003, 0.03))
    monkeypatch.setattr(evaluation, "DRAWS", 2)


def test_training_twice_writes_the_same_file_with_its_provenance(tmp_path, capsys):
    folder = tables(tmp_path)
    for name in ("one.json", "two.json"):
        assert main(["train-router", "--tables", str(folder), "--out", str(tmp_path / name)]) == 0
    first = (tmp_path / "one.json").read_bytes()
    assert first == (tmp_path / "two.json").read_bytes()
    weights = parse(first)
    assert [weights.provenance[f"rows of {name}"] for name in ("MMLU", "GSM8K")] == [
        299,
        149,
    ]  # the clean ones
    assert weights.provenance["rows of FusionBench, llama-3.1-8b-instruct"] == 149
    assert weights.provenance["rows of FusionBench, gemma-2-9b-it"] == 148  # those with both scores
    assert weights.grams == {}
    assert "one.json" in capsys.readouterr().out


def test_the_figures_are_written_between_the_markers_of_a_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nstale\n{report.END}\nafter\n", encoding="utf-8")
    assert main(["train-router", "--tables", str(tables(tmp_path)), "--report", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    figures = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("| ")]
    found = [(row[0], row[1], float(row[2].split()[0])) for row in figures if row[2][:1].isdigit()]
    assert [row[:2] for row in found[:4]] == [
        ("random", "none"),
        ("prompt length", "none"),
        ("shipped recipe", "other tables"),
        ("calibrated", "100 of it"),
    ]
    assert found[0][2] == pytest.approx(0.5, abs=0.02)  # the mean of many orders
    assert found[3][2] > 0.55
    assert "worst, less length" in text
    assert "| 0.003 | " in text
    assert text.split(report.BEGIN)[1].split(report.END)[0].strip() in capsys.readouterr().out


def test_another_router_is_measured_on_the_same_rows(tmp_path, capsys):
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\n"
        "prompts = json.load(sys.stdin)\n"
        "lengths = [len(prompt) for prompt in prompts]\n"
        "json.dump({'version': '9', 'first': lengths, 'second': [0] * len(prompts)}, sys.stdout)\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    assert main(["train-router", "--tables", str(tables(tmp_path)), "--litellm", str(python)]) == 0
    lines = capsys.readouterr().out.splitlines()
    length, other = (
        [[*line.split(" | ")[2:3], *line.split(" | ")[4:]] for line in lines if name in line]
        for name in ("| prompt", "9 heuristic |")
    )
    assert other == length
    assert len(other) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tables", "nowhere"], "nowhere has no mmlu/mmlu_*.csv"),
        (["--tables", "ROUTELLM"], "has no fusionbench.csv"),
        (["--tables", "TABLES", "--report", "page.md"], "page.md has no line"),
        (["--tables", "TABLES", "--litellm", sys.executable], "returned non-zero"),
    ],
)
def test_missing_inputs_are_named(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("page.md").write_text("no marks", encoding="utf-8")
    folder = str(tables(tmp_path))
    if "ROUTELLM" in arguments:
        Path(folder, "fusionbench.csv").unlink()
    given = [folder if one in ("TABLES", "ROUTELLM") else one for one in arguments]
    assert main(["train-router", *given]) == 2
    assert said in capsys.readouterr().err


def test_weights_that_beat_those_in_service_are_installed(tmp_path, capsys):
    file = tmp_path / "own.json"
    assert main(["calibrate", str(log(tmp_path / "log.jsonl", prompts(500, 7))), "--install", str(file)]) == 0
    out = capsys.readouterr().out
    assert "calibrated          APGR 0." in out
    assert "weights in service  APGR 0." in out
    assert "prompt length       APGR 0." in out
    assert "better than the weights in service in 100%" in out
    scorer = PromptScorer(parse(file.read_bytes()))
    assert scorer.score(Prompt("violet stone")) > scorer.score(Prompt("apple stone"))
    assert scorer.weights.provenance["rows"] == 500
    assert main(["explain", "violet stone", "--weights", str(file)]) == 0
    assert '"violet"' in capsys.readouterr().out


def test_calibrated_weights_that_are_in_service_are_not_replaced_by_their_like(tmp_path, capsys):
    file, rows = tmp_path / "own.json", str(log(tmp_path / "log.jsonl", prompts(500, 7)))
    assert main(["calibrate", rows, "--install", str(file)]) == 0
    assert main(["calibrate", rows, "--in-service", str(file), "--install", str(tmp_path / "new.json")]) == 1
    assert "must beat the weights in service" in capsys.readouterr().err
    file.write_text("{}", encoding="utf-8")
    assert main(["calibrate", rows, "--in-service", str(file)]) == 2
    assert "own.json: not a weights file" in capsys.readouterr().err


def test_weights_that_beat_nothing_are_not_installed(tmp_path, capsys):
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
def test_an_insufficient_log_is_rejected(rows, said, tmp_path, capsys):
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
def test_a_bad_line_is_named(line, said, tmp_path, capsys):
    file = tmp_path / "log.jsonl"
    file.write_text('{"prompt": "x", "weak_ok": 0.5, "strong_ok": true}\n' + line + "\n", encoding="utf-8")
    assert main(["calibrate", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_explain_says_tier_and_reason_in_one_sentence_then_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompt = "Prove that there are infinitely many primes, compare three proofs, derive a bound for each"
    assert main(["explain", prompt]) == 0
    lines = capsys.readouterr().out.splitlines()
    score = PromptScorer(shipped()).score(Prompt(prompt))
    assert re.fullmatch(
        r"strong: proof words, an analysis word, .*, 74 letters: "
        r"harder than \d+ % of everyday prompts",
        lines[0],
    )
    assert lines[1] == "share       the hardest 30% of a route's calls are strong"
    assert f"score       {score:+.4f}" in lines
    assert main(["explain", prompt, "--share", "0"]) == 0
    assert capsys.readouterr().out.startswith("cheap: ")


def test_explain_takes_share_and_weights_of_a_route(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)
    Path("own.json").write_bytes(dump(shipped()))
    route = (
        "  {}: {{route: complexity, complexity: {{strong_share: {}, weights: {}}}, "
        "candidates: [{{upstream: gpu, model: a}}, {{upstream: gpu, model: b}}]}}\n"
    )
    Path("sluice.yaml").write_text(
        'upstreams: {gpu: {base_url: "http://127.0.0.1:1/v1"}}\nmodels:\n'
        + route.format("most", 0.9, "null")
        + route.format("none", 0, "own.json")
        + "  plain: {candidates: [{upstream: gpu}]}\n",
        encoding="utf-8",
    )
    assert main(["explain", "Translate the sentence"]) == 0
    assert "the hardest 90% of" in capsys.readouterr().out
    assert main(["explain", "Prove the theorem of apples", "--model", "none"]) == 0
    assert "% of the prompts behind its weights" in capsys.readouterr().out
    assert main(["explain", "x", "--model", "plain", "--config", "sluice.yaml"]) == 2
    assert "no model 'plain' with `route: complexity`" in capsys.readouterr().err
    assert main(["explain", "x", "--config", "missing.yaml"]) == 2
    assert "missing.yaml is no valid config" in capsys.readouterr().err


def test_explain_rejects_bad_weights(tmp_path, capsys):
    file = tmp_path / "weights.json"
    file.write_text("{}", encoding="utf-8")
    assert main(["explain", "x", "--weights", str(file)]) == 2
    assert "not a weights file" in capsys.readouterr().err


def test_without_numpy_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["calibrate", "log.jsonl"]) == 2
    assert "sluice-gateway[train]" in capsys.readouterr().err
