"""From the config to the batching layer: which calls of which model may share an upstream call."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from gateway.batching.batcher import BatchLimits
from gateway.batching.experiment import GREEDY, LOCKSTEP, OFF, Learned, MergeMode
from gateway.batching.layer import BatchingLayer, BatchMetrics, BatchPolicy
from gateway.batching.learned_store import Entry, LearnedStore
from gateway.batching.profile import BatchProfiles, ProfileKey
from gateway.config import model as cfg
from gateway.core.call import Call
from gateway.core.clock import Clock
from gateway.http.client.batch_probe import BatchEndpointProbe
from gateway.http.client.upstream import UpstreamClient
from gateway.resilience.poison_requests import PoisonRequests
from gateway.telemetry.metrics import Metrics
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS

_TAKES_PROMPT_LISTS: Final = frozenset(("vllm", "sglang"))
_UNBOUNDED: Final = 10**12
# The merge modes that an experiment may choose from; the first is tried first.
_FIXED_MODE: Final[tuple[MergeMode, ...]] = (GREEDY,)
_FEW_CALLS_MODES: Final[tuple[MergeMode, ...]] = (LOCKSTEP, GREEDY)
_LIST_MODES: Final[tuple[MergeMode, ...]] = (LOCKSTEP, OFF, GREEDY)
_GENERATION_MODES: Final[tuple[MergeMode, ...]] = (OFF, LOCKSTEP, GREEDY)


class PreviousGeneration(NamedTuple):
    """What a reload takes over from the generation before."""

    config: cfg.Config
    offers: BatchEndpointProbe
    batching: BatchingLayer


def batch_probe(
    config: cfg.Config,
    clients: Mapping[str, UpstreamClient],
    previous: PreviousGeneration | None,
    clock: Clock,
) -> BatchEndpointProbe:
    """The probe for vLLM's batch endpoint, with the results of the previous one."""
    probed = {name: client for name, client in clients.items() if config.upstreams[name].kind == "vllm"}
    return BatchEndpointProbe(probed, clock, None if previous is None else previous.offers)


def batching_layer(
    config: cfg.Config,
    offers: BatchEndpointProbe,
    previous: PreviousGeneration | None,
    metrics: Metrics,
    clock: Clock,
    poison: PoisonRequests,
    kept: "LearnedModes",
) -> BatchingLayer:
    """The layer for this config."""
    policies: dict[tuple[str, str], BatchPolicy] = {}
    for model in config.models.values():
        policies |= {(model.name, endpoint): policy for endpoint, policy in _policies(config, model, offers)}

    def policy_of(call: Call) -> BatchPolicy | None:
        return policies.get((call.routing.route.name, call.request.endpoint))

    learned = {} if previous is None else _still_valid(config, policies, previous)
    layer = BatchingLayer(
        policy_of, _batch_metrics(metrics), clock, poison.suspected, learned, partial(kept.found, config)
    )
    kept.follow(config, layer.profiles)
    return layer


def learned_path(config: cfg.Config) -> str | None:
    """The file that keeps merge modes over restarts; by default beside the ledger, if that is a file."""
    path = config.server.learned_path
    if path is None and config.usage.store == "sqlite":
        return str(Path(config.usage.path).parent / "sluice-learned.json")
    return None if path == "off" else path


class LearnedModes:
    """Tickable that keeps what experiments have found over restarts, see `LearnedStore`."""

    EVERY_S = 60.0

    def __init__(self, path: str | None) -> None:
        self._store = LearnedStore(path)
        self._config: cfg.Config | None = None
        self._profiles: BatchProfiles = {}
        self._due = 0.0
        self._saving: asyncio.Future[None] | None = None

    async def load(self) -> None:
        """Read the file, before the first generation is built."""
        if self._config is None:
            await asyncio.to_thread(self._store.load)

    def found(self, config: cfg.Config, key: ProfileKey) -> Learned | None:
        """What an earlier run found for these calls to the same servers."""
        return self._store.found((*key, _servers(config, key)))

    def follow(self, config: cfg.Config, profiles: BatchProfiles) -> None:
        """Keep what these profiles find from now on."""
        self._config, self._profiles = config, profiles

    def tick(self, now: float) -> None:
        """Tickable: write what is new once a minute, off the event loop."""
        if now >= self._due and (self._saving is None or self._saving.done()):
            if self._due:
                loop = asyncio.get_running_loop()
                self._saving = loop.run_in_executor(None, self._store.save, self._entries())
            self._due = now + self.EVERY_S

    async def close(self) -> None:
        """Write the rest."""
        if self._saving is not None:
            await asyncio.wait([self._saving])
        await asyncio.to_thread(self._store.save, self._entries())

    def _entries(self) -> list[Entry]:
        config = self._config
        if config is None:
            return []
        return [
            Entry(*key, _servers(config, key), found)
            for key, profile in self._profiles.items()
            if (found := profile.learned()) is not None
        ]


def _servers(config: cfg.Config, key: ProfileKey) -> str:
    """A fingerprint of all that decides what a mode is worth: where the calls go, and the bounds of batches."""
    model = config.models[key[0]]
    urls = [upstream.base_url for upstream in _reachable(config, model).values()]
    names = [(candidate.upstream, candidate.model) for candidate in model.candidates]
    text = repr((urls, names, model.batching)).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def _still_valid(
    config: cfg.Config, policies: Mapping[tuple[str, str], BatchPolicy], previous: PreviousGeneration
) -> BatchProfiles:
    """The profiles of models whose calls go to the same servers, under the same bounds, as before."""
    servers, former_servers = config.upstreams, previous.config.upstreams
    unchanged = {
        name
        for name, model in config.models.items()
        if (former := previous.config.models.get(name)) is not None
        and (model.candidates, model.fallbacks) == (former.candidates, former.fallbacks)
    }
    return {
        key: profile
        for key, profile in previous.batching.profiles.items()
        if key[0] in unchanged
        and (policy := policies.get(key[:2])) is not None
        and (policy.limits, policy.modes) == (profile.limits, profile.modes)
        and profile.upstream in servers
        and servers[profile.upstream].base_url == former_servers[profile.upstream].base_url
    }


def _policies(
    config: cfg.Config, model: cfg.ModelConfig, offers: BatchEndpointProbe
) -> Iterable[tuple[str, BatchPolicy]]:
    """The policy of each endpoint whose calls may be merged."""
    named = _reachable(config, model)
    upstreams, rules = named.values(), model.batching
    headers = sorted({name.lower() for upstream in upstreams for name in upstream.forward_headers})
    max_items = min(upstream.max_inputs for upstream in upstreams)
    if rules.policy == "off":  # lists that are too long for the upstream are still split
        bounds = BatchLimits("eager", 1, _UNBOUNDED, 0.0, 1, max_items)
        yield EMBEDDINGS, BatchPolicy(bounds, _FIXED_MODE, 0, 0, lambda: False, headers)
        yield COMPLETIONS, BatchPolicy(bounds, _FIXED_MODE, 0, _UNBOUNDED, lambda: False, headers)
        return
    # A batch must not exceed what an upstream allows per minute.
    token_rates = [upstream.rate.tpm for upstream in upstreams if upstream.rate.tpm]
    max_tokens = min([rules.max_tokens, *token_rates])
    bounds = BatchLimits(rules.policy, rules.max_size, max_tokens, rules.max_wait, rules.max_inflight, max_items)
    list_modes = generation_modes = _FIXED_MODE
    if rules.policy == "eager":  # a window is chosen for fewer calls, not for faster ones
        rate_limited = any(upstream.rate.rpm for upstream in upstreams)
        list_modes, generation_modes = _FEW_CALLS_MODES if rate_limited else _LIST_MODES, _GENERATION_MODES
    yield EMBEDDINGS, BatchPolicy(bounds, list_modes, 0, 0, lambda: True, headers)
    kinds = {upstream.kind for upstream in upstreams}
    merges, longest = rules.merge_chat != "off", rules.merge_max_output
    takes_lists = merges and kinds <= _TAKES_PROMPT_LISTS
    per_key = any(upstream.cache_salt is not None for upstream in upstreams)
    yield (
        COMPLETIONS,
        BatchPolicy(bounds, generation_modes, longest, _UNBOUNDED, lambda: takes_lists, headers, per_key),
    )
    if merges and kinds == {"vllm"}:
        # Every upstream that a retry may reach must offer the batch endpoint.
        offered = _all_offer(offers, named)
        yield CHAT, BatchPolicy(bounds, generation_modes, longest, longest, offered, headers, per_key)


def _all_offer(offers: BatchEndpointProbe, upstreams: Iterable[str]) -> Callable[[], bool]:
    names = tuple(upstreams)
    return lambda: all(offers.batch_chat(name) for name in names)


def _reachable(config: cfg.Config, model: cfg.ModelConfig) -> Mapping[str, cfg.UpstreamConfig]:
    """The upstreams that a call for this model may reach, fallbacks included."""
    models = [model, *(config.models[name] for name in model.fallbacks)]
    names = [candidate.upstream for reachable in models for candidate in reachable.candidates]
    return {name: config.upstreams[name] for name in names}


def _batch_metrics(metrics: Metrics) -> BatchMetrics:
    return BatchMetrics(
        metrics.batch_size.observer,
        metrics.batch_wait.observer,
        lambda model, tokens: metrics.batch_wasted.adder(model)(tokens),
    )
