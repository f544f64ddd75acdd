"""Groups deployments by public model: named upstreams, ordered candidates, strategies and weights."""

import math
import re
from collections import defaultdict
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from gateway.cli.import_litellm.deployment import Deployment
from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import plain, quoted

_STRATEGIES: Final = {
    "simple-shuffle": "weighted",
    "least-busy": "least_loaded",
    "cost-based-routing": "cheapest",
    "latency-based-routing": "least_loaded",
    "usage-based-routing": "least_loaded",
    "usage-based-routing-v2": "least_loaded",
}
_EXACT: Final = {"simple-shuffle", "least-busy", "cost-based-routing"}
_MAX_WEIGHT: Final = 1_000_000


class Named(NamedTuple):
    """The fields of an upstream or model, and the paths in LiteLLM's config that they come from."""

    fields: dict[str, Any]
    places: list[str]


def upstreams(deployments: list[Deployment]) -> tuple[dict[str, Named], dict[str, str]]:
    """The upstreams by name, and the name of each deployment's upstream by the deployment's path.

    Deployments with the same address, key and settings share an upstream. Those with rates or limits share
    one only for the same model, because LiteLLM counts per deployment and the gateway per upstream.
    """
    names: dict[bytes, str] = {}
    named: dict[str, Named] = {}
    of: dict[str, str] = {}
    for deployment in deployments:
        model = deployment.candidate.get("model", deployment.public) if deployment.limited else ""
        identity = msgspec.json.encode([deployment.upstream, model], order="sorted")
        if identity not in names:
            provider = deployment.provider
            name = _unused(_ascii(f"{provider}-{model}" if model else provider), named)
            names[identity] = name
            named[name] = Named(deployment.upstream, [])
        name = names[identity]
        named[name].places.append(deployment.place)
        of[deployment.place] = name
    return named, of


def without_other_tags(deployments: list[Deployment], by_tag: bool, notes: Notes) -> list[Deployment]:
    """Without the deployments that LiteLLM gives to requests with other tags than their model's first ones.

    As candidates of one model they would get all of its requests. Untagged ones and `default` come first.
    """
    groups: dict[str, list[Deployment]] = defaultdict(list)
    for deployment in deployments:
        groups[deployment.public].append(deployment)
    left_out = set()
    for public, group in groups.items() if by_tag else ():
        general = [one.tags for one in group if not one.tags or "default" in one.tags]
        kept = set(general or [group[0].tags])
        for deployment in group:
            if deployment.tags not in kept:
                left_out.add(deployment.place)
                notes.add(
                    f"{deployment.place}.litellm_params.tags",
                    f"requests are not routed by tags, so this deployment of {quoted(public)} is left out; "
                    "give it its own model_name",
                )
    return [deployment for deployment in deployments if deployment.place not in left_out]


def models(
    deployments: list[Deployment], of: dict[str, str], strategy: str, place: str, notes: Notes
) -> dict[str, Named]:
    """The public models by name. `strategy` is LiteLLM's, at the path `place`."""
    groups: dict[str, list[Deployment]] = defaultdict(list)
    for deployment in deployments:
        groups[deployment.public].append(deployment)
    several = any(len(group) > 1 for group in groups.values())
    if several and strategy not in _EXACT:
        nearest = _STRATEGIES.get(strategy, "weighted")
        notes.add(place, f"{quoted(strategy)} has no exact counterpart; {nearest} is the nearest")
    return {public: _model(public, group, of, strategy, notes) for public, group in groups.items()}


def _model(public: str, group: list[Deployment], of: dict[str, str], strategy: str, notes: Notes) -> Named:
    ordered = any(deployment.order is not None for deployment in group)
    if ordered:  # deployments without an order come last, as in LiteLLM
        group = sorted(group, key=lambda deployment: (deployment.order is None, deployment.order or 0))
        orders = [deployment.order for deployment in group]
        if len(set(orders)) < len(orders):
            notes.add(group[0].place, f"{quoted(public)}: deployments of the same order are tried as listed")
    candidates = [{"upstream": of[deployment.place], **deployment.candidate} for deployment in group]
    fields: dict[str, Any] = {"candidates": candidates}
    if len(group) > 1 and not ordered:
        fields["route"] = _STRATEGIES.get(strategy, "weighted")
        if fields["route"] == "weighted":
            for candidate, weight in zip(candidates, _weights(group), strict=True):
                candidate |= {"weight": weight} if weight != 1 else {}
    return Named(fields, [deployment.place for deployment in group])


def _weights(group: list[Deployment]) -> list[int]:
    """Whole weights from the first of `weight`, `rpm` and `tpm` that is set, as in LiteLLM; else all 1."""
    for name in ("weight", "rpm", "tpm"):
        if any(deployment.weights.get(name) for deployment in group):
            fractions = [deployment.weights.get(name, Decimal(0)) for deployment in group]
            break
    else:
        return [1] * len(group)
    scale = 10 ** max(0, *(-int(value.as_tuple().exponent) for value in fractions))
    weights = [int(value * scale) for value in fractions]
    common = math.gcd(*weights)
    weights = [weight // common for weight in weights]
    if max(weights) > _MAX_WEIGHT:
        weights = [round(weight / max(weights) * _MAX_WEIGHT) for weight in weights]
    return weights


def _ascii(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain(name), flags=re.ASCII).strip("-.")[:56] or "upstream"


def _unused(name: str, used: dict[str, Named]) -> str:
    unused, count = name, 1
    while unused in used:
        count += 1
        unused = f"{name}-{count}"
    return unused
