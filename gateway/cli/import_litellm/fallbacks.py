"""LiteLLM's fallbacks and aliases, as far as there are such models and nothing goes in a circle."""

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
        at = join(join(place, "model_group_alias"), alias)
        name = target.get("model") if isinstance(target, dict) else target
        if not isinstance(name, str) or name not in models:
            notes.tell(at, "leads to no model that was taken; left out")
        elif alias not in models:
            fields = dict(models[name].fields)
            # The name sent upstream is by default the public one, which is another here.
            fields["candidates"] = [{**one, "model": one.get("model", name)} for one in fields["candidates"]]
            models[alias] = Named(fields, [at])


def add_fallbacks(models: dict[str, Named], sections: list[tuple[dict[str, Any], str]], notes: Notes) -> None:
    """From the first of the sections that has some, each with its place."""
    for kind in ("fallbacks", "context_window_fallbacks"):
        for section, place in sections:
            if section.get(kind):
                for name, other, at in _pairs(section[kind], join(place, kind), notes):
                    _add(models, name, other, at, notes)
                    if kind == "context_window_fallbacks" and _leads(models, name, other):
                        models[name].fields["on_overflow"] = "fallback"
                break
    _add_defaults(models, sections, notes)
    for model in models.values():
        if "fallbacks" in model.fields:  # only now, for until here names were compared
            model.fields["fallbacks"] = [values.text(name) for name in model.fields["fallbacks"]]


def _add_defaults(models: dict[str, Named], sections: list[tuple[dict[str, Any], str]], notes: Notes) -> None:
    for section, place in sections:
        for other in values.entries(section.get("default_fallbacks")):
            for name in models:
                if other != name:
                    _add(models, name, str(other), join(place, "default_fallbacks"), notes)


def _pairs(listed: Any, place: str, notes: Notes) -> Iterator[tuple[str, str, str]]:
    """Model, its fallback, and the place of both, out of `[{a: [b, c]}, ...]`."""
    for i, entry in enumerate(values.entries(listed)):
        for name, others in entry.items() if isinstance(entry, dict) else ():
            at = join(f"{place}[{i}]", name)
            for other in values.entries(others):
                if isinstance(other, str):
                    yield name, other, at
                else:
                    notes.tell(at, "a fallback is a model's name here; left out")


def _add(models: dict[str, Named], name: str, other: str, at: str, notes: Notes) -> None:
    if name == "*":
        for each in models:
            if each != other:
                _add(models, each, other, at, notes)
    elif name not in models or other not in models:
        missing = name if name not in models else other
        notes.tell(at, f"no model {quoted(missing)} was taken; left out")
    elif other not in (known := models[name].fields.setdefault("fallbacks", [])):
        known.append(other)
        if name == other or _circle(models):
            known.remove(other)
            notes.tell(at, f"{quoted(name)} to {quoted(other)} would go round in a circle; left out")
        if not known:
            del models[name].fields["fallbacks"]


def _leads(models: dict[str, Named], name: str, other: str) -> bool:
    return name in models and other in models[name].fields.get("fallbacks", ())


def _circle(models: dict[str, Named]) -> bool:
    graph = {name: model.fields.get("fallbacks", []) for name, model in models.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError:
        return True
    return False
