"""From the config to the layer that merges calls: which calls of which model may share an upstream call."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import GREEDY, LOCKSTEP, OFF, MergeMode
from gateway.batching.layer import BatchingLayer, BatchMetrics, BatchPolicy
from gateway.batching.profile import BatchProfiles
from gateway.config import model as cfg
from gateway.core.call import CHAT, COMPLETIONS, EMBEDDINGS, Call
from gateway.core.clock import Clock
from gateway.http.client.batch_probe import BatchEndpointProbe
from gateway.http.client.upstream import UpstreamClient
from gateway.resilience.poison_requests import PoisonRequests
from gateway.telemetry.metrics import Metrics, fast_observes

_LISTS_OF_PROMPTS = ("vllm", "sglang")
_UNBOUNDED = 10**12
_MERGED: Final[tuple[MergeMode, ...]] = (GREEDY,)
_FEW_CALLS: Final[tuple[MergeMode, ...]] = (LOCKSTEP, GREEDY)
_OF_LISTS: Final[tuple[MergeMode, ...]] = (LOCKSTEP, GREEDY, OFF)
_OF_GENERATION: Final[tuple[MergeMode, ...]] = (OFF, LOCKSTEP, GREEDY)


class PreviousGeneration(NamedTuple):
    """What the config before had."""

    config: cfg.Config
    offers: BatchEndpointProbe
    batching: BatchingLayer


def offers(
    config: cfg.Config, upstreams: Mapping[str, UpstreamClient], last: PreviousGeneration | None, clock: Clock
) -> BatchEndpointProbe:
    """Those engines that may offer something, with what is known of them."""
    asked = {name: one for name, one in upstreams.items() if config.upstreams[name].kind == "vllm"}
    return BatchEndpointProbe(asked, clock, None if last is None else last.offers)


def batching(
    config: cfg.Config,
    offers: BatchEndpointProbe,
    last: PreviousGeneration | None,
    metrics: Metrics,
    clock: Clock,
    poison: PoisonRequests,
) -> BatchingLayer:
    """The layer for this config."""
    terms: dict[tuple[str, str], BatchPolicy] = {}
    for model in config.models.values():
        terms |= {(model.name, endpoint): one for endpoint, one in _terms(config, model, offers)}

    def terms_of(call: Call) -> BatchPolicy | None:
        return terms.get((call.model, call.endpoint))

    learned = {} if last is None else _still_true(config, terms, last)
    return BatchingLayer(terms_of, _counts(metrics), clock, poison.suspected, learned)


def _still_true(
    config: cfg.Config, terms: Mapping[tuple[str, str], BatchPolicy], last: PreviousGeneration
) -> BatchProfiles:
    """What calls have taught of models that go where they went, under the same bounds."""
    servers, before = config.upstreams, last.config.upstreams
    same = {
        name
        for name, one in config.models.items()
        if (known := last.config.models.get(name)) is not None
        and (one.candidates, one.fallbacks) == (known.candidates, known.fallbacks)
    }
    return {
        place: kind
        for place, kind in last.batching.kinds.items()
        if place[0] in same
        and (one := terms.get(place[:2])) is not None
        and (one.bounds, one.ways) == (kind.bounds, kind.ways)
        and kind.upstream in servers
        and servers[kind.upstream].base_url == before[kind.upstream].base_url
    }


def _terms(
    config: cfg.Config, model: cfg.ModelConfig, offers: BatchEndpointProbe
) -> Iterable[tuple[str, BatchPolicy]]:
    upstreams = _upstreams(config, model)
    rules = model.batching
    headers = sorted({name.lower() for one in upstreams.values() for name in one.forward_headers})
    max_items = min(one.max_inputs for one in upstreams.values())
    if rules.policy == "off":  # what is longer than the upstream takes is sent in parts all the same
        bounds = BatchLimits("eager", 1, _UNBOUNDED, 0.0, 1, max_items)
        yield EMBEDDINGS, BatchPolicy(bounds, _MERGED, 0, 0, lambda: False, headers)
        yield COMPLETIONS, BatchPolicy(bounds, _MERGED, 0, _UNBOUNDED, lambda: False, headers)
        return
    # No batch that would be more than an upstream allows in a minute.
    max_tokens = min([rules.max_tokens, *(one.rate.tpm for one in upstreams.values() if one.rate.tpm)])
    bounds = BatchLimits(
        rules.policy, rules.max_size, max_tokens, rules.max_wait, rules.max_inflight, max_items
    )
    of_lists = of_generation = _MERGED
    if rules.policy == "eager":  # who asks for a window has fewer calls in mind, not faster ones
        counted = any(one.rate.rpm for one in upstreams.values())
        of_lists, of_generation = _FEW_CALLS if counted else _OF_LISTS, _OF_GENERATION
    yield EMBEDDINGS, BatchPolicy(bounds, of_lists, 0, 0, lambda: True, headers)
    kinds = {one.kind for one in upstreams.values()}
    merges, longest = rules.merge_chat != "off", rules.merge_max_output
    listed = merges and kinds <= set(_LISTS_OF_PROMPTS)
    apart = any(one.cache_salt is not None for one in upstreams.values())
    yield COMPLETIONS, BatchPolicy(bounds, of_generation, longest, _UNBOUNDED, lambda: listed, headers, apart)
    if merges and kinds == {"vllm"}:
        # Every upstream that a retry may reach must take it.
        offered = _all_offer(offers, upstreams)
        yield CHAT, BatchPolicy(bounds, of_generation, longest, longest, offered, headers, apart)


def _all_offer(offers: BatchEndpointProbe, upstreams: Iterable[str]) -> Callable[[], bool]:
    names = tuple(upstreams)
    return lambda: all(offers.batch_chat(name) for name in names)


def _upstreams(config: cfg.Config, model: cfg.ModelConfig) -> Mapping[str, cfg.UpstreamConfig]:
    """All that a call for this model may reach."""
    models = [model, *(config.models[name] for name in model.fallbacks)]
    names = [one.upstream for found in models for one in found.candidates]
    return {name: config.upstreams[name] for name in names}


def _counts(metrics: Metrics) -> BatchMetrics:
    return BatchMetrics(
        fast_observes(metrics.batch_size),
        fast_observes(metrics.batch_wait),
        lambda model, tokens: metrics.batch_wasted.labels(model).inc(tokens),
    )
