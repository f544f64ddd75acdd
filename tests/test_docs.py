"""What the pages say is what the code says: fields, errors, files, commands, links and configs."""

import importlib.util
import json
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from pages import EXAMPLES, PAGES, READMES, ROOT, TOP, blocks, links, table, tables
from test_architecture import FLOORS, ROOTS, WORDS

from gateway import cli, errors
from gateway.config import document
from gateway.config.load import Loaded, load
from gateway.config.sentences import SENTENCES
from gateway.config.unbuilt import unbuilt

DOCS = ROOT / "docs"
MINIMAL = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:8000/v1"}},
    "models": {"small": {"candidates": [{"upstream": "local"}]}},
}
KINDS = [
    kind
    for name, kind in vars(errors).items()
    if isinstance(kind, errors.Kind) and name.isupper() and kind.code
]
FOREIGN = re.compile(
    r"(?<![\w.])/(?:work|root|home|opt|tmp|mnt)/|pypi\.org|pythonhosted|npmjs|ghcr\.io|docker\.io|artifactory"
    r"|index-url|find-links|\bmirror\b",
    re.IGNORECASE,
)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def loaded_from(text: str, folder: Path) -> Loaded:
    """A config with a value for every variable that it names without a default."""
    file = folder / "sluice.yaml"
    file.write_text(text, encoding="utf-8")
    named = re.findall(r"\$\{(\w+)\}", text)
    return load(file, {variable: f"{number:064}" for number, variable in enumerate(named)})


def test_the_configuration_page_is_written_from_the_schema():
    written = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert written == document.page(), "python -m gateway.config.document > docs/configuration.md"


def test_every_field_has_its_sentence_and_every_sentence_its_field():
    assert list(SENTENCES) == document.paths()


def test_every_field_that_is_not_built_yet_is_marked():
    marked = {path.replace("[]", "").replace(".*", "") for path in document.paths()}
    assert {row.field for row in document.UNBUILT} <= marked
    assert (DOCS / "configuration.md").read_text(encoding="utf-8").count("**Not built yet:**") == len(
        document.UNBUILT
    )


def test_the_table_of_errors_is_that_of_the_code():
    rows = table(DOCS / "errors.md", "status | type | code | outcome | advice | when")
    expected = [[str(kind.status), kind.type, kind.code, kind.outcome] for kind in KINDS]
    assert [row[:4] for row in rows] == expected
    assert [row[4] == "x-should-retry: false" for row in rows] == [kind.final for kind in KINDS]


def test_the_table_of_upstream_statuses_is_that_of_the_code():
    told = {}
    for statuses, becomes in table(DOCS / "errors.md", "upstream | client"):
        if becomes.startswith("the same status"):
            assert set(map(int, statuses.split(", "))) == errors.PASSED_THROUGH
        elif statuses[:3].isdigit() and not statuses.startswith("200"):
            told |= dict.fromkeys(map(int, statuses.split(", ")), becomes.partition(";")[0])
    for status in set(range(400, 600)) - errors.PASSED_THROUGH:
        kind = errors.upstream_status(status)
        assert told.get(status, "502 upstream_error") == f"{kind.status} {kind.code}", status


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_metric_that_is_named_exists(page):
    known = {row[0].strip("`") for row in table(DOCS / "operations.md", "metric | type | labels | tells")}
    assert set(re.findall(r"\bsluice_[a-z_]+", page.read_text(encoding="utf-8"))) <= known


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    for target in links(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, target


@pytest.mark.parametrize("page", READMES, ids=name)
def test_every_page_is_in_the_readme(page):
    told = {(ROOT / target.partition("#")[0]).resolve() for target in links(page.read_text(encoding="utf-8"))}
    assert {name(one) for one in {*PAGES} - told} == {name(page)} - {name(one) for one in told}


def test_the_korean_readme_says_what_the_english_one_says():
    english, korean = map(_sections, READMES)
    assert len(english) == len(korean)
    for ours, theirs in zip(english, korean, strict=True):
        assert {*links(ours)} - {"README.ko.md"} == {*links(theirs)} - {"README.md"}
        assert sorted(re.findall(r"`[^`\n]+`", ours)) == sorted(re.findall(r"`[^`\n]+`", theirs))
    for language in ("yaml", "python"):
        assert blocks(READMES[0], language) == blocks(READMES[1], language)
    first, second = ([shlex.split(one, comments=True) for one in _commands(page)] for page in READMES)
    assert first == second


def test_the_korean_tables_have_the_rows_and_figures_of_the_english_ones():
    for ours, theirs in zip(*map(tables, READMES), strict=True):
        for row, other in zip(ours, theirs, strict=True):
            assert [links(cell) for cell in row] == [links(cell) for cell in other]
            assert list(map(_figures, row[1:])) == list(map(_figures, other[1:])), row
            assert re.findall(r"`[^`]+`", " ".join(row)) == re.findall(r"`[^`]+`", " ".join(other))


def _sections(page: Path) -> list[str]:
    return re.split(
        r"^## ", re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S), flags=re.M
    )


def _commands(page: Path) -> list[str]:
    return "\n".join(blocks(page, "sh")).splitlines()


def _figures(text: str) -> list[str]:
    return sorted(re.findall(r"\d+(?:[.,]\d+)*", re.sub(r"\(.*?\)", "", text)))


def test_the_proxies_figures_of_the_readme_are_those_of_the_benchmarks():
    measured = {
        (row[0], row[1]): row for one in tables(DOCS / "benchmarks.md") for row in one if len(row) > 8
    }
    contenders = {contender for _, contender in measured}
    head = "CPU of the proxy | a chat call, 32 connections | a chunk, 400 streams | memory at 400 streams"
    for proxy, *told in ([cell.strip("*") for cell in row] for row in table(READMES[0], head)):
        (contender,) = [one for one in contenders if proxy.lower().startswith(one)]
        chat, stream = measured["chat-32", contender], measured["stream-400", contender]
        cells = zip((chat[5], stream[5], stream[9]), ("µs", "µs", "MB"), strict=True)
        assert told == [f"{float(cell.split()[0]):.0f} {unit}" for cell, unit in cells], proxy


def test_every_figure_of_the_readme_stands_in_the_page_that_it_names():
    page = ""
    for _, figures, again in table(READMES[0], "what | figure | again with"):
        for target in links(again):
            page = (ROOT / target.partition("#")[0]).read_text(encoding="utf-8")
        assert _figures(figures)
        assert [
            one
            for one in _figures(figures)
            if not re.search(rf"(?<![\d.,]){re.escape(one)}(?![\d]|[.,]\d)", page)
        ] == []


def test_the_floors_of_the_architecture_are_those_that_are_kept():
    rows = {
        row[0]: row[1].strip("`").split()
        for row in table(ROOT / "ARCHITECTURE.md", "floor | modules | may know")
    }
    told = {part.removesuffix(".py").rstrip("/") for row in rows.values() for part in row}
    assert told == {*FLOORS, *ROOTS} - {"config", "litellm"}  # which are told below the table
    assert {*rows["0, words"]} == {*WORDS}


@pytest.mark.parametrize("page", TOP, ids=name)
def test_every_file_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    words = " ".join(re.findall(r"`([^`\n]+)`", text)).split()
    files = [word for word in words if re.fullmatch(r"[\w./-]+(?:\.(?:py|md|toml|yaml|lua)|/)", word)]
    # Without .py: the words of floor 0 in ARCHITECTURE.
    files += [f"{word}.py" for row in re.findall(r"0, words \| `([^`]+)`", text) for word in row.split()]
    absent = [one for one in files if not ((ROOT / one).exists() or (ROOT / "gateway" / one).exists())]
    # The config that the reader is about to write.
    assert [one for one in absent if one != "sluice.yaml"] == []
    assert len(files) > 10


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name)
def test_no_page_names_this_machine_or_a_registry(page):
    assert FOREIGN.findall(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_yaml_block_is_a_config(page, tmp_path):
    for block in blocks(page, "yaml"):
        sections = yaml.safe_load(block)
        text = block if "models" in sections else yaml.safe_dump(MINIMAL | sections)
        assert loaded_from(text, tmp_path).problems == []


@pytest.mark.parametrize("file", [one for one in EXAMPLES if one.suffix == ".yaml"], ids=name)
def test_every_example_config_loads_and_does_what_it_says(file, tmp_path):
    loaded = loaded_from(file.read_text(encoding="utf-8"), tmp_path)
    assert (loaded.problems, loaded.warnings, unbuilt(loaded)) == ([], [], [])


def test_the_config_of_four_lines_has_four_lines():
    example = (ROOT / "examples" / "sluice.yaml").read_text(encoding="utf-8")
    assert len(example.splitlines()) == 4
    assert example in blocks(DOCS / "configuration.md", "yaml")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_exists(page):
    for line in "\n".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        match words:
            case ["make", target]:
                makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
                assert re.search(rf"^{target}\s*:", makefile, re.MULTILINE), line
            case ["python3", "-m", "venv", ".venv", "&&", ".", ".venv/bin/activate"]:
                pass  # the venv of every Debian; nothing of ours
            case ["pip", "install", "."]:
                project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
                assert project["project"]["scripts"]["sluice"] == "gateway.cli:main"
            case ["pip", "install", package] if extra := re.fullmatch(r"sluice-gateway\[([\w-]+)\]", package):
                project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
                assert extra[1] in project["project"]["optional-dependencies"], line
            case ["sluice", *arguments]:
                cli._parser().parse_args(arguments)
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module) is not None, line
            case ["apt-get", "install", *packages]:
                assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", package) for package in packages), line
            case ["cp", source, _] | ["docker", "build", "-f", source, "-t", _, "."]:
                assert (ROOT / source).is_file(), line
            case ["docker", "compose", "up", *_]:
                pass  # tests/deploy reads what it would read
            case ["export", variable] if variable.startswith("OTEL_"):
                pass  # OpenTelemetry's own
            case ["kubectl", "apply", "-k", folder]:
                assert (ROOT / folder / "kustomization.yaml").is_file(), line
            case ["curl" | "tail" | "grep", *_] if page.stem == "runbooks":
                pass  # test_runbooks.py runs them
            case ["curl", "-s", url, "-H", _, "-H", "content-type: application/json", "-d", body]:
                assert url == "http://127.0.0.1:8080/v1/chat/completions"
                assert json.loads(body).keys() == {"model", "messages"}
            case [script] if script.startswith("deploy/"):
                assert os.access(ROOT / script, os.X_OK), line
            case ["printf", "%s", _, "|", "sha256sum"] | []:  # test_examples.py runs it
                pass
            case _:
                pytest.fail(f"{name(page)}: nothing checks {line}")
