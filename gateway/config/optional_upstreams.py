"""Leaves out upstreams whose key is blank on purpose (`api_key: ${NAME:-}`), and models only they serve."""

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from gateway.config.environment import Blank
from gateway.config.model import Config
from gateway.config.problems import Problem, quoted


def take_blank_keys(document: dict[str, Any]) -> list[str]:
    """The names of the upstreams to leave out. Removes their blank `api_key` so that the rest can be read."""
    upstreams = document.get("upstreams")
    blank = []
    for name, upstream in upstreams.items() if isinstance(upstreams, dict) else ():
        if isinstance(upstream, dict) and isinstance(upstream.get("api_key"), Blank):
            del upstream["api_key"]
            blank.append(name)
    return blank


def leave_out(config: Config, names: Collection[str]) -> tuple[Config, list[str], list[Problem]]:
    """The config without those upstreams, a warning for each omission, and a problem if no model remains."""
    if not names:
        return config, [], []
    warnings = [f"upstream {quoted(name)} is left out, because its api_key is empty" for name in names]
    models = {}
    for name, model in config.models.items():
        candidates = tuple(candidate for candidate in model.candidates if candidate.upstream not in names)
        if candidates:
            models[name] = replace(model, candidates=candidates)
        else:
            warnings.append(f"model {quoted(name)} is left out, because all its upstreams are")
    for name, model in models.items():
        models[name] = replace(model, fallbacks=tuple(other for other in model.fallbacks if other in models))
        if model.baseline in config.models and model.baseline not in models:
            warnings.append(f"the baseline of model {quoted(name)} is left out, because its model is")
            models[name] = replace(models[name], baseline=None)
    upstreams = {name: upstream for name, upstream in config.upstreams.items() if name not in names}
    if not models:
        problem = Problem("models", "none is left, because the api_key of every upstream is empty")
        return config, warnings, [problem]
    return replace(config, upstreams=upstreams, models=models), warnings, []
