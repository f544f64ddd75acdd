"""Converts LiteLLM's fallbacks and aliases, except those without a model or in a circle."""

import graphlib
from collections.abc import Iterator
from typing import Any

from gateway.cli.import_litellm import values
from gateway.cli.import_litellm.models import Named
from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import join, quoted


def add_aliases(models: dict[str, Named], section: dict[str, Any], place: str, notes: Notes) -> None:
    """Each alias becomes a public model with the same candidates."""
    for alias, target in values.section(section, "model_group_alias", notes, place).items():
        path = join(join(place, "model_group_alias"), alias)
        name = target.get("model") if isinstance(target, dict) else target
        if not isinstance(name, str) or name not in models:
            notes.add(path, "no converted model has this name; left out")
        elif alias not in models:
            fields = dict(models[name].fields)
            # By default the public name is sent upstream, and an alias has another.
            fields["candidates"] = [{"model": name, **candidate} for candidate in fields["candidates"]]
            models[alias] = Named(fields, [path])


def add_fallbacks(models: dict[str, Named], sections: list[tuple[dict[str, Any], str]], notes: Notes) -> None:
    """Add the fallbacks of the first section that has some; the sections come with their paths."""
    for kind in ("fallbacks", "context_window_fallbacks"):
        for section, place in sections:
            if section.get(kind):
                for name, other, at in _pairs(section[kind], join(place, kind), notes):
                    _add(models, name, other, at, notes)
                    if kind == "context_window_fallbacks" and _falls_back(models, name, other):
                        models[name].fields["on_overflow"] = "fallback"
                break
    _add_defaults(models, sections, notes)
    for model in models.values():
        if "fallbacks" in model.fields:  # only now: the names were compared unescaped
            model.fields["fallbacks"] = [values.text(name) for name in model.fields["fallbacks"]]


def _add_defaults(models: dict[str, Named], sections: list[tuple[dict[str, Any], str]], notes: Notes) -> None:
    for section, place in sections:
        for other in values.entries(section.get("default_fallbacks")):
            for name in models:
                if other != name:
                    _add(models, name, str(other), join(place, "default_fallbacks"), notes)


def _pairs(listed: Any, place: str, notes: Notes) -> Iterator[tuple[str, str, str]]:
    """Model, fallback and the path of the pair, from `[{a: [b, c]}, ...]`."""
    for i, entry in enumerate(values.entries(listed)):
        for name, others in entry.items() if isinstance(entry, dict) else ():
            at = join(f"{place}[{i}]", name)
            for other in values.entries(others):
                if isinstance(other, str):
                    yield name, other, at
                else:
                    notes.add(at, "a fallback is a model's name here; left out")


def _add(models: dict[str, Named], name: str, other: str, at: str, notes: Notes) -> None:
    if name == "*":
        for each in models:
            if each != other:
                _add(models, each, other, at, notes)
    elif name not in models or other not in models:
        missing = name if name not in models else other
        notes.add(at, f"no converted model is named {quoted(missing)}; left out")
    elif other not in (fallbacks := models[name].fields.setdefault("fallbacks", [])):
        fallbacks.append(other)
        if name == other or _has_cycle(models):
            fallbacks.remove(other)
            notes.add(at, f"{quoted(name)} to {quoted(other)} would go round in a circle; left out")
        if not fallbacks:
            del models[name].fields["fallbacks"]


def _falls_back(models: dict[str, Named], name: str, other: str) -> bool:
    return name in models and other in models[name].fields.get("fallbacks", ())


def _has_cycle(models: dict[str, Named]) -> bool:
    graph = {name: model.fields.get("fallbacks", []) for name, model in models.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError:
        return True
    return False
