"""What the pages say is what the code says: fields, errors, files, commands, links and configs."""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from pages import EXAMPLES, PAGES, ROOT, blocks, table

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
    """A config with a value for every variable that it names."""
    file = folder / "sluice.yaml"
    file.write_text(text, encoding="utf-8")
    return load(
        file, {variable: f"{number:064}" for number, variable in enumerate(re.findall(r"\$\{(\w+)", text))}
    )


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
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES[:2], ids=name)
def test_every_file_that_is_named_exists(page):
    text = page.read_text(encoding="utf-8")
    words = " ".join(re.findall(r"`([^`\n]+)`", text)).split()
    files = [word for word in words if re.fullmatch(r"[\w./-]+(?:\.(?:py|md|toml|yaml)|/)", word)]
    # Without .py: the drawing of the README, and the words of floor 0 in ARCHITECTURE.
    files += [f"{word}.py" for word in re.findall(r"^[ │]*((?:edge|wire|policy)/\w+) ─", text, re.MULTILINE)]
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
            case ["sluice", *arguments]:
                cli._parser().parse_args(arguments)
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module) is not None, line
            case ["apt-get", "install", package]:
                assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", package), line
            case ["printf", "%s", _, "|", "sha256sum"] | []:  # test_examples.py runs it
                pass
            case _:
                pytest.fail(f"{name(page)}: nothing checks {line}")
