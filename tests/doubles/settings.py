"""Configs for tests: one upstream with two models, and what a test adds."""

from collections.abc import Mapping
from typing import Any

KEY = "gw-key-0123456789"
OTHER_KEY = "gw-key-restricted-9"
AUTH = ("authorization", f"Bearer {KEY}")
UPSTREAM_KEY = "up-key-9-secret"


def settings(
    url: str,
    *,
    server: Mapping[str, Any] | None = None,
    upstream: Mapping[str, Any] | None = None,
    keys: bool = False,
    **sections: Any,
) -> dict[str, Any]:
    """A config: public `m-small` and `m-embed` are `up-small` and `up-embed` at this upstream.

    `server` and `upstream` add fields to these sections, `keys` requires `KEY` (all models) or `OTHER_KEY`
    (only `m-embed`), `sections` add or replace top-level sections.
    """
    config: dict[str, Any] = {
        "server": {"port": 0, **(server or {})},
        "admin": {"port": 0},
        "upstreams": {"local": {"base_url": url, **(upstream or {})}},
        "models": {
            "m-small": {"candidates": [{"upstream": "local", "model": "up-small"}]},
            "m-embed": {"candidates": [{"upstream": "local", "model": "up-embed"}]},
        },
        "usage": {"store": "off"},
        "retry": {"attempts": 1},
        "log": {"level": "info", "format": "json"},
    }
    if keys:
        config["keys"] = [
            {"name": "team-a", "key": KEY},
            {"name": "team-b", "key": OTHER_KEY, "models": ["m-embed"]},
        ]
    return {**config, **sections}
