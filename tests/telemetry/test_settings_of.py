"""The settings that a failed request points at exist, and every reason of a failure was thought of."""

import re

import pytest

from gateway.config.reference_page import page
from gateway.core import errors
from gateway.resilience.classification import REASONS
from gateway.telemetry.settings_of import _BY_CODE, _BY_RESULT, settings_of

NAMES = {"key": "team-a", "model": "small", "upstream": "local"}
NO_SETTING = {"client_error", "overloaded", "overflow", "reset", "server_error", "timeout"}
"""Reasons of failed attempts behind which there is no setting, or one that the code of the error names."""


def test_names_are_filled_in() -> None:
    assert settings_of("queue_full", "", NAMES) == "server.max_queue, upstreams.*.max_concurrency"
    assert settings_of("rate_limit_exceeded", "", NAMES) == "keys.team-a.limits"
    assert settings_of("upstream_auth_failed", "account 401", NAMES) == "upstreams.local.api_key"
    assert settings_of("upstream_error", "server_error 500", NAMES) == ""
    assert settings_of("rate_limit_exceeded", "", {**NAMES, "key": ""}) == "keys.*.limits"


def test_every_reason_has_a_setting_or_needs_none() -> None:
    assert set(_BY_RESULT) - {"upstream_timeout"} == set(REASONS) - NO_SETTING
    kinds = [each for each in vars(errors).values() if isinstance(each, errors.ErrorKind)]
    assert set(_BY_CODE) <= {kind.code for kind in kinds}


@pytest.mark.parametrize("settings", [*_BY_CODE.values(), *_BY_RESULT.values()])
def test_the_settings_exist(settings: str) -> None:
    documented = page()
    for setting in settings.split(", "):
        if " " not in setting:
            path = re.sub(r"keys\.\{key\}", "keys[]", setting)
            path = re.sub(r"\{\w+\}", "*", path)
            assert f"{path}`" in documented or f"{path}." in documented or f"{path}[" in documented, path
