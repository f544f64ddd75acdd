"""Configs with several upstreams for one model, and fallbacks."""

from collections.abc import Mapping
from typing import Any

from doubles.settings import settings


def routed(
    *urls: str,
    fallbacks: tuple[str, ...] = (),
    retry: Mapping[str, Any] | None = None,
    windows: tuple[int | None, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """A config: `m-small` has a candidate at each of these upstreams, which are called `a`, `b`, `c`, ...

    There the model is called `up-a`, `up-b`, ... and has the context window at the same index of `windows`.
    `fallbacks` are the upstreams of the models `m-x`, `m-y`, ... that `m-small` falls back to. `retry` is
    added to 2 attempts with a backoff of 1 ms; `more` goes to `settings`.
    """
    upstream = more.pop("upstream", {})
    config = settings(urls[0], **more)
    config["upstreams"] = {}
    config["models"] = {"m-small": {"candidates": [], "fallbacks": []}}
    config["retry"] = {"attempts": 2, "backoff_base": "1ms", "backoff_max": "2s", **(retry or {})}
    small = config["models"]["m-small"]
    for name, url in zip("abcdefgh", urls, strict=False):
        config["upstreams"][name] = {"base_url": url, **upstream}
        small["candidates"].append({"upstream": name, "model": f"up-{name}"})
    for candidate, window in zip(small["candidates"], windows, strict=False):
        candidate["context_window"] = window
    for name, url in zip("xyz", fallbacks, strict=False):
        config["upstreams"][name] = {"base_url": url, **upstream}
        config["models"][f"m-{name}"] = {"candidates": [{"upstream": name, "model": f"up-{name}"}]}
        small["fallbacks"].append(f"m-{name}")
    return config
