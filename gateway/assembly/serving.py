"""From the config to the candidates that serve each endpoint: by `serves`, or by what a kind is known for."""

from collections.abc import Mapping
from typing import Final, get_args

from gateway.config import model as cfg
from gateway.core.call import Route

ALL: Final[frozenset[str]] = frozenset(get_args(cfg.EndpointName))
_BY_KIND: Final[Mapping[str, frozenset[str]]] = {
    "anthropic": frozenset(("messages",)),
    "vllm": ALL - {"images", "moderations"},
}
"""What a kind serves; of any other, only its answers tell."""


def served_by(upstream: cfg.UpstreamConfig) -> frozenset[str]:
    """The names of the endpoints that calls may go to there."""
    return _BY_KIND.get(upstream.kind, ALL) if upstream.serves is None else upstream.serves


def narrowed(config: cfg.Config, routes: Mapping[str, Route]) -> dict[str, dict[str, Route]]:
    """For each endpoint that some candidate does not serve, the routes with those that do, by model."""
    served = {name: served_by(upstream) for name, upstream in config.upstreams.items()}
    short = frozenset().union(*(ALL - endpoints for endpoints in served.values()))
    return {endpoint: _routes(endpoint, served, routes) for endpoint in short}


def _routes(endpoint: str, served: Mapping[str, frozenset[str]], routes: Mapping[str, Route]) -> dict[str, Route]:
    made = {
        name: route.only(tuple(one for one in route.candidates if endpoint in served[one.upstream]))
        for name, route in routes.items()
    }
    for name, route in routes.items():
        fallbacks = (made[fallback.name] for fallback in route.fallbacks)
        made[name].fallbacks = tuple(fallback for fallback in fallbacks if fallback.candidates)
    return made
