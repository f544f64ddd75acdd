"""No property test may fail because the machine is slow."""

import re
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent


def test_the_profile_of_all_tests_bounds_no_time() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check


def test_who_lists_health_checks_lists_that_of_time_too() -> None:
    """The list of a test replaces that of the profile."""
    lists = {
        (file.name, found)
        for file in TESTS.rglob("*.py")
        for found in re.findall(r"suppress_health_check=\[([^]]*)\]", file.read_text("utf-8"))
        if file != Path(__file__)
    }
    assert lists
    assert [each for each in lists if "too_slow" not in each[1]] == []
