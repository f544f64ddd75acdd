"""`sluice report`: its options, what it writes, and what it says when it cannot."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from doubles.redis_server import RedisServer
from doubles.settings import settings
from rich.cells import cell_len

from gateway.cli.main import main
from gateway.core.budget_calendar import Calendar
from gateway.core.clock import unix
from gateway.core.units import NANO, Secret
from gateway.usage.redis_store import RedisUsageStore
from gateway.usage.savings import Alternative, Saving
from gateway.usage.sqlite_store import SqliteUsageStore
from gateway.usage.store import UsageBatch, UsageRow

EARLIER = "2026-01-15"


def batch(day: str) -> UsageBatch:
    """A request that cost one dollar instead of four."""
    return UsageBatch(
        day,
        (UsageRow(day, "team-a", "m-small", "local", 1, 10, 5, 0, 0, NANO),),
        (Saving(day, "team-a", "m-small", "local", compared=1, baseline=4 * NANO, plain=NANO, paid=NANO),),
        (Alternative(day, "m-small", "declared", "local/up-small", 1, 4 * NANO),),
    )


@pytest.fixture
def today() -> str:
    return Calendar("UTC", unix(), 0.0).day(0.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, today: str) -> Path:
    """A folder with a config, and a usage file with a request of today and an old one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)
    put(tmp_path, {"store": "sqlite", "path": "usage.db"})

    async def fill() -> None:
        store = SqliteUsageStore("usage.db")
        await store.add(batch(today))
        await store.add(batch(EARLIER))
        await store.close()

    asyncio.run(fill())
    return tmp_path


def put(folder: Path, usage: dict[str, Any], **more: Any) -> None:
    config = settings("http://127.0.0.1:9/v1", usage=usage, **more)
    (folder / "sluice.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def figures(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["report", "--format", "json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_last_thirty_days(folder: Path, capsys: pytest.CaptureFixture[str], today: str):
    report = figures(capsys)
    assert (report["to"], report["requests"]["compared"]) == (today, 1)
    assert figures(capsys, "--days", "1")["from"] == today
    assert (report["baselines"]["declared"]["usd"], report["actual_usd"]) == ("4", "1")


def test_from_one_day_to_another(folder: Path, capsys: pytest.CaptureFixture[str], today: str):
    assert figures(capsys, "--from", "2026-01-01", "--to", "2026-01-31")["requests"]["all"] == 1
    assert figures(capsys, "--from", "2026-01-16", "--to", "2026-01-31")["requests"]["all"] == 0
    assert figures(capsys, "--to", EARLIER)["from"] == "2025-12-17"


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_text_fits_the_terminal(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    language: str,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["report", "--format", "text", "--lang", language]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 40
    assert max(map(cell_len, lines)) <= columns
    assert not any(mark in line for line in lines for mark in ("| ", "**", "`", "## ", "\x1b"))
    assert any("m-small" in line for line in lines)


def test_the_page_and_the_chart_are_written_to_the_given_files(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "out").mkdir()
    assert main(["report", "--lang", "ko", "--out", "out/page.md", "--chart", "chart.svg"]) == 0
    assert capsys.readouterr() == ("", "")
    page = (folder / "out" / "page.md").read_text(encoding="utf-8")
    assert page.startswith("# 비용 절감 보고서\n")
    assert "](../chart.svg)" in page
    assert "기준 비용" in (folder / "chart.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--days", "0"], "days must be a whole number from 1 to 3660"),
        (["--days", "x"], "days must be a whole number from 1 to 3660"),
        (["--days", "9", "--to", "2026-01-31"], "--days ends today"),
        (["--from", "2026-02-01", "--to", "2026-01-31"], "--from 2026-02-01 is after --to 2026-01-31"),
        (["--from", "1999-01-01"], "a report covers at most 3660 days"),
    ],
)
def test_invalid_days_are_one_line_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
):
    assert main(["report", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "yesterday"], "argument --from: give a day such as 2026-11-29"),
        (["--days", "3", "--from", "2026-01-01"], "not allowed with argument"),
        (["--lang", "fr"], "invalid choice: 'fr'"),
        (["--format", "html"], "invalid choice: 'html'"),
        (["--chart", "chart.png"], "a chart is drawn as SVG; give a file whose name ends in .svg"),
    ],
)
def test_wrong_options_are_one_line_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
):
    with pytest.raises(SystemExit) as ended:
        main(["report", *options])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_config_with_problems_is_status_2(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "sluice.yaml").write_text("models: 3\n", encoding="utf-8")
    assert main(["report"]) == 2
    assert "models" in capsys.readouterr().err


def test_without_recorded_usage_it_says_so(folder: Path, capsys: pytest.CaptureFixture[str]):
    put(folder, {"store": "off"})
    assert main(["report"]) == 2
    assert "usage is not recorded" in capsys.readouterr().err


def test_a_missing_file_is_not_created(folder: Path, capsys: pytest.CaptureFixture[str]):
    put(folder, {"store": "sqlite", "path": "other.db"})
    assert main(["report"]) == 0
    assert capsys.readouterr().out.startswith("No request from ")
    assert not (folder / "other.db").exists()


@pytest.mark.parametrize(("language", "said"), [("en", "No request from"), ("ko", "기간의 요청이 없습니다.")])
def test_days_without_requests_are_one_line_with_advice(
    folder: Path, capsys: pytest.CaptureFixture[str], language: str, said: str
):
    assert main(["report", "--from", "2026-01-16", "--to", "2026-01-31", "--lang", language]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert said in out
    assert all(word in out for word in ("2026-01-16", "2026-01-31", "`sluice serve`", "`--from`"))
    assert main(["report", "--from", EARLIER, "--to", EARLIER, "--lang", language]) == 0
    assert "| `m-small` |" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_status_1(folder: Path, capsys: pytest.CaptureFixture[str]):
    with sqlite3.connect(folder / "other.db") as other:
        other.execute("CREATE TABLE something (whatever)")
    other.close()
    put(folder, {"store": "sqlite", "path": "other.db"})
    assert main(["report"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "another program" in err


def test_an_unwritable_path_is_status_1(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", "--out", "nowhere/page.md"]) == 1
    assert "nowhere/page.md" in capsys.readouterr().err


def test_from_redis(folder: Path, capsys: pytest.CaptureFixture[str], today: str):
    with RedisServer(folder) as server:

        async def fill() -> None:
            store = RedisUsageStore(Secret(server.url), "sluice")
            await store.add(batch(today))
            await store.close()

        asyncio.run(fill())
        put(folder, {"store": "redis"}, redis={"url": server.url})
        assert figures(capsys)["baselines"]["declared"]["saved_usd"] == "3"
        server.stop()
        assert main(["report"]) == 1
        assert "redis: " in capsys.readouterr().err
