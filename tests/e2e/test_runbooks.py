"""The runbooks' commands run, show the trouble that their part is about, and what is told there ends it."""

import asyncio
import re
import shlex
import shutil

import pytest
from kit.pages import ROOT, table

from benchmarks.drill import drill
from benchmarks.drill_page import Look, looks
from benchmarks.drill_scene import scene
from benchmarks.drill_troubles import TROUBLES, Trouble

QUICK = {
    "SluiceDown",
    "SluiceNoUpstream",
    "SluiceBreakerOpen",
    "SluiceTruncated",
    "SluiceRedisDown",
    "SluiceReloadFailed",
    "SluiceUnpriced",
    "SluiceBatchLate",
}
"""Some seconds each; `python -m benchmarks.drill` has the others too, and the alerts."""

with_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def test_every_runbook_has_its_commands_and_its_trouble() -> None:
    page = looks()
    assert [alert for trouble in TROUBLES for alert in trouble.alerts] == [*page]
    for trouble in TROUBLES:
        assert any(page[alert] for alert in trouble.alerts), trouble.alerts
    assert [look for part in page.values() for look in part if not look.shows] == []


def test_a_look_is_seen_only_where_its_words_stand_in_this_order() -> None:
    look = Look("", 'a{b="c"} ... 2.0')
    assert look.seen_in('x\na{b="c"} and 2.0\n')
    assert not look.seen_in('2.0 a{b="c"}')
    assert not look.seen_in('a{b="c"} 2x0')


@with_curl
async def test_every_command_runs_before_a_gateway_that_is_well() -> None:
    known = {row[0].strip("`") for row in table(ROOT / "docs/monitoring.md", "metric | type | labels | meaning")}
    async with scene() as one:
        assert await one.ask() == 200
        commands = {look.command for part in looks().values() for look in part}
        done = await asyncio.gather(*map(one.shell, commands))
    for command, (status, said) in zip(commands, done, strict=True):
        words = shlex.split(command)
        if words[-2:] == ["bug in the gateway", "sluice.log"]:
            assert (status, said) == (1, ""), command  # there is none
        elif "grep" in words and not said:
            # A counter with labels is not there before its first count; its name must be right.
            assert any(re.match(words[-1], name) for name in known), command
        else:
            assert status == 0, (command, said)
            assert "404: Not Found" not in said, command


@with_curl
@pytest.mark.parametrize(
    "trouble", [one for one in TROUBLES if QUICK & {*one.alerts}], ids=lambda trouble: trouble.alerts[0]
)
async def test_the_trouble_is_seen_and_ended_as_told(trouble: Trouble) -> None:
    async with scene() as one:
        assert (await drill(one, trouble)).wrong == ""
