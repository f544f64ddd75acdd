"""What the pages say is what the code says: fields, errors, files, commands, links and configs."""

import importlib.util
import json
import os
import re
import shlex
import tomllib
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from kit.pages import EXAMPLES, PAGES, READMES, ROOT, TOP, blocks, links, table, tables

from gateway.cli import main as cli
from gateway.config import reference_page as document
from gateway.config.field_docs import SENTENCES
from gateway.config.load import Loaded, load
from gateway.core import errors
from gateway.inspector.call_filter import CallFilter

DOCS = ROOT / "docs"
MINIMAL = {
    "upstreams": {"local": {"base_url": "http://127.0.0.1:8000/v1"}},
    "models": {"small": {"candidates": [{"upstream": "local"}]}},
}
KINDS = [
    kind for name, kind in vars(errors).items() if isinstance(kind, errors.ErrorKind) and name.isupper() and kind.code
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
    assert written == document.page(), "python -m gateway.config.reference_page > docs/configuration.md"


def test_every_field_has_its_sentence_and_every_sentence_its_field():
    assert list(SENTENCES) == document.paths()


def test_the_table_of_errors_is_that_of_the_code():
    rows = table(DOCS / "errors.md", "status | type | code | outcome | advice | when")
    expected = [[str(kind.status), kind.type, kind.code, kind.outcome] for kind in KINDS]
    assert [row[:4] for row in rows] == expected
    assert [row[4] == "x-should-retry: false" for row in rows] == [not kind.retryable for kind in KINDS]


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
    known = {row[0].strip("`") for row in table(DOCS / "monitoring.md", "metric | type | labels | meaning")}
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
    told = _linked(page) | {page.resolve()}
    told |= {one for one in _linked(ROOT / "benchmarks" / "README.md") if one.parent.name == "benchmarks"}
    assert {name(one) for one in {*PAGES} - told} == set()


def _linked(page: Path) -> set[Path]:
    targets = links(page.read_text(encoding="utf-8"))
    return {(page.parent / target.partition("#")[0]).resolve() for target in targets}


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
    measured = {(row[0], row[1]): row for one in tables(DOCS / "benchmarks.md") for row in one if len(row) > 8}
    contenders = {contender for _, contender in measured}
    head = "CPU of the proxy | a chat request, 32 connections | a chunk, 400 streams | memory at 400 streams"
    for proxy, *told in ([cell.strip("*") for cell in row] for row in table(READMES[0], head)):
        contender = max((one for one in contenders if proxy.lower().startswith(one)), key=len)
        chat, stream = measured["chat-32", contender], measured["stream-400", contender]
        cells = zip((chat[5], stream[5], stream[9]), ("µs", "µs", "MB"), strict=True)
        assert told == [f"{float(cell.split()[0]):.0f} {unit}" for cell, unit in cells], proxy


@pytest.mark.parametrize("heading", ["proof | figure | repeat with", "what | figure | repeat with"])
def test_every_figure_of_the_readme_stands_in_the_page_that_it_names(heading):
    for _, figures, command in table(READMES[0], heading):
        (target,) = links(command)
        page = (ROOT / target.partition("#")[0]).read_text(encoding="utf-8")
        assert _figures(figures)
        assert [
            one for one in _figures(figures) if not re.search(rf"(?<![\d.,]){re.escape(one)}(?![\d]|[.,]\d)", page)
        ] == []


@pytest.mark.parametrize("page", TOP, ids=name)
def test_every_path_that_is_named_exists(page):
    words = " ".join(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))).split()
    paths = [word for word in words if re.fullmatch(r"[\w./-]+(?:\.(?:py|md|toml|yaml|lua)|/)", word)]
    # The config that the reader is about to write.
    absent = [one for one in paths if not any((ROOT / root / one).exists() for root in ("", "gateway"))]
    assert {*absent} <= {"sluice.yaml"}
    assert len(paths) > 10


def test_every_feature_of_the_readme_is_a_folder_and_every_folder_a_feature():
    told = {path for row in table(READMES[0], "feature | where") for path in row[1].strip("`").split("`, `")}
    inner = {"core", "pipeline", "redis", "reporting"}  # what features are made of
    packages = {one.parent.name for one in (ROOT / "gateway").glob("*/__init__.py")} - inner
    assert {one for one in told if one.startswith("gateway/")} == {f"gateway/{one}/" for one in packages}


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
    assert (loaded.problems, loaded.warnings) == ([], [])


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
                assert project["project"]["scripts"]["sluice"] == "gateway.cli.main:main"
            case ["pip", "install", package] if extra := re.fullmatch(r"sluice-gateway\[([\w-]+)\]", package):
                project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
                assert extra[1] in project["project"]["optional-dependencies"], line
            case ["git", "clone", _, folder, "&&", "cd", into]:
                assert folder == into
            case ["openssl", "rand", "-hex", length]:
                assert int(length) >= 16  # bytes, as docs/security.md asks for
            case [variable, "python", "your_app.py"]:
                assert variable == "OPENAI_BASE_URL=http://127.0.0.1:8080/v1"
            case ["docker", "run", "--rm", "-p", ports, "-e", "OPENAI_API_KEY", "-v", mount, "sluice"]:
                image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
                _, inside, mode = mount.split(":")
                assert f"SLUICE_CONFIG={inside}" in image
                assert mode == "ro"
                assert re.search(rf"^EXPOSE .*\b{ports.split(':')[-1]}\b", image, re.MULTILINE)
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
                # The engine behind it may be a toy: without these two its answers look broken.
                assert json.loads(body).keys() == {"model", "temperature", "max_tokens", "messages"}
            case ["curl", "-s", url] if url.startswith("http://127.0.0.1:9464/admin/calls"):
                CallFilter.of(dict(parse_qsl(urlsplit(url).query)))
            case [script] if script.startswith("deploy/"):
                assert os.access(ROOT / script, os.X_OK), line
            case ["printf", "%s", _, "|", "sha256sum"] | []:  # test_examples.py runs it
                pass
            case _:
                pytest.fail(f"{name(page)}: nothing checks {line}")
