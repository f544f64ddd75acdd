"""Deployments by public model: upstreams with names, candidates in their order, routes and weights."""

import math
import re
from collections import defaultdict
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from gateway.cli.import_litellm.deployment import Deployment
from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import plain, quoted

_ROUTES: Final = {
    "simple-shuffle": "weighted",
    "least-busy": "least_loaded",
    "cost-based-routing": "cheapest",
    "latency-based-routing": "least_loaded",
    "usage-based-routing": "least_loaded",
    "usage-based-routing-v2": "least_loaded",
}
_ALIKE: Final = {"simple-shuffle", "least-busy", "cost-based-routing"}
_MOST_WEIGHT: Final = 1_000_000


class Named(NamedTuple):
    """An upstream or a model of our config, and where its parts come from."""

    fields: dict[str, Any]
    places: list[str]


def upstreams(deployments: list[Deployment]) -> tuple[dict[str, Named], dict[str, str]]:
    """Upstreams by name, and the name of each deployment's by its place.

    Deployments with the same address, key and settings share one. Those with rates or bounds of their own do
    not, unless they are of the same model: what LiteLLM counts by deployment, an upstream counts as a whole.
    """
    known: dict[bytes, str] = {}
    named: dict[str, Named] = {}
    of: dict[str, str] = {}
    for one in deployments:
        model = one.candidate.get("model", one.public) if one.limited else ""
        identity = msgspec.json.encode([one.upstream, model], order="sorted")
        if identity not in known:
            name = _free(_ascii(f"{one.provider}-{model}" if model else one.provider), named)
            known[identity] = name
            named[name] = Named(one.upstream, [])
        name = known[identity]
        named[name].places.append(one.place)
        of[one.place] = name
    return named, of


def models(
    deployments: list[Deployment], of: dict[str, str], strategy: str, place: str, notes: Notes
) -> dict[str, Named]:
    """Public models by name. `strategy` is LiteLLM's and stands at `place`."""
    groups: dict[str, list[Deployment]] = defaultdict(list)
    for one in deployments:
        groups[one.public].append(one)
    several = any(len(group) > 1 for group in groups.values())
    if several and strategy not in _ALIKE:
        nearest = _ROUTES.get(strategy, "weighted")
        notes.tell(place, f"{quoted(strategy)} has no exact counterpart; {nearest} is the nearest")
    return {public: _model(public, group, of, strategy, notes) for public, group in groups.items()}


def _model(public: str, group: list[Deployment], of: dict[str, str], strategy: str, notes: Notes) -> Named:
    ordered = any(one.order is not None for one in group)
    if ordered:  # those without an order come last, as with LiteLLM
        group = sorted(group, key=lambda one: (one.order is None, one.order or 0))
        orders = [one.order for one in group]
        if len(set(orders)) < len(orders):
            notes.tell(group[0].place, f"{quoted(public)}: deployments of the same order are tried as listed")
    candidates = [{"upstream": of[one.place], **one.candidate} for one in group]
    fields: dict[str, Any] = {"candidates": candidates}
    if len(group) > 1 and not ordered:
        fields["route"] = _ROUTES.get(strategy, "weighted")
        if fields["route"] == "weighted":
            for candidate, weight in zip(candidates, _weights(group), strict=True):
                candidate |= {"weight": weight} if weight != 1 else {}
    return Named(fields, [one.place for one in group])


def _weights(group: list[Deployment]) -> list[int]:
    """As LiteLLM: by `weight`, else by `rpm`, else by `tpm`, as far as any is there; else all alike."""
    for name in ("weight", "rpm", "tpm"):
        if any(one.weights.get(name) for one in group):
            found = [one.weights.get(name, Decimal(0)) for one in group]
            break
    else:
        return [1] * len(group)
    whole = 10 ** max(0, *(-int(value.as_tuple().exponent) for value in found))
    weights = [int(value * whole) for value in found]
    common = math.gcd(*weights)
    weights = [weight // common for weight in weights]
    if max(weights) > _MOST_WEIGHT:
        weights = [round(weight / max(weights) * _MOST_WEIGHT) for weight in weights]
    return weights


def _ascii(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain(name), flags=re.ASCII).strip("-.")[:56] or "upstream"


def _free(name: str, taken: dict[str, Named]) -> str:
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name}-{count}"
    return free
