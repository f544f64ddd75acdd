"""Which endpoints an upstream serves, by its kind and by the config."""

from typing import get_args

import pytest

from gateway.assembly.serving import ALL, served_by
from gateway.config.model import EndpointName, UpstreamConfig
from gateway.wire.endpoints import ENDPOINTS


def test_the_config_names_every_endpoint_that_goes_upstream() -> None:
    assert set(get_args(EndpointName)) == {endpoint.name for endpoint in ENDPOINTS if not endpoint.ours}


@pytest.mark.parametrize(
    ("kind", "served"),
    [
        ("anthropic", {"messages"}),
        ("vllm", ALL - {"images", "moderations"}),
        ("openai", ALL),
        ("sglang", ALL),
        ("llamacpp", ALL),
    ],
)
def test_what_a_kind_serves(kind: str, served: set[str]) -> None:
    upstream = UpstreamConfig(name="u", base_url="http://h/v1", kind=kind)
    assert served_by(upstream) == served


def test_the_config_wins() -> None:
    upstream = UpstreamConfig(name="u", base_url="http://h/v1", kind="anthropic", serves=frozenset(("chat",)))
    assert served_by(upstream) == {"chat"}
