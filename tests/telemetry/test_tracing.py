"""Which calls are traced."""

import subprocess
import sys
from random import Random

import pytest
from kit.calls import make_call

from gateway.config import cross_checks as references
from gateway.config.load import load
from gateway.telemetry.tracing import Tracing
from gateway.wire.http.traceparent import Parent, read

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FOUR_LINES = "upstreams:\n  a: {base_url: 'http://127.0.0.1:1/v1'}\nmodels:\n  m: {candidates: [{upstream: a}]}\n"


def traced(sample: float, parents: list[str | None]) -> list[bool]:
    """Whether each of these calls is, with that header."""
    gate = Tracing(sample, Random(7), lambda: 1.0, lambda call, trace, now: None)
    found = []
    for parent in parents:
        call = make_call(now=1.0)
        call.request.headers = {} if parent is None else {"traceparent": parent}
        assert gate.admit(call, 1.0) is None
        found.append(call.trace is not None)
    return found


@pytest.mark.parametrize(("sample", "least", "most"), [(0.0, 0, 0), (0.1, 70, 130), (1.0, 1000, 1000)])
def test_a_share_of_those_that_nobody_traces_yet(sample: float, least: int, most: int) -> None:
    assert least <= sum(traced(sample, [None] * 1000)) <= most


@pytest.mark.parametrize("sample", [0.0, 1.0])
def test_a_client_that_traces_decides_itself(sample: float) -> None:
    assert traced(sample, [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"]) == [True, False]


def test_later_versions_of_the_header_may_say_more() -> None:
    parent = Parent(int(TRACE, 16), int(SPAN, 16), sampled=True)
    assert read(f"00-{TRACE}-{SPAN}-01") == read(f"42-{TRACE}-{SPAN}-03-more-of-it") == parent


def test_without_the_packages_a_config_with_traces_is_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(FOUR_LINES + "traces: {enabled: true}\n", encoding="utf-8")
    assert load(file, {}).problems == []
    monkeypatch.setattr(references.importlib.util, "find_spec", lambda name: None)
    (problem,) = load(file, {}).problems
    assert str(problem) == "traces.enabled: needs more packages: pip install 'sluice-gateway[otlp]'"


def test_nothing_of_it_is_imported_before_it_is_wanted() -> None:
    asked = "import sys, gateway.assembly.gateway; print('gateway.telemetry.span_exporter' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
