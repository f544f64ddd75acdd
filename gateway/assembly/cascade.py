"""From the config to the choice between cheap and strong candidates, whose state outlives a reload."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from msgspec.structs import replace

from gateway.assembly import certificates, identity, metrics_folder
from gateway.assembly.proposals import ProposingFile
from gateway.assembly.upstreams import WorkerShare
from gateway.config import model as cfg
from gateway.config.complexity import ComplexityConfig
from gateway.config.load import Loaded
from gateway.config.problems import Problem, join
from gateway.core.call import Gate, Layer
from gateway.core.clock import Clock
from gateway.pipeline.stack import compose
from gateway.routing.cascade.answer_checks import CheckPolicy
from gateway.routing.cascade.layer import CascadeLayer
from gateway.routing.cascade.shadow import ShadowLayer, ShadowSample, TaskPool
from gateway.routing.complexity.quota import DollarBucket
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import TierChooser
from gateway.routing.complexity.tiers import ComplexityScorer, EstimateOf
from gateway.routing.complexity.weights import BadWeights, parse, shipped
from gateway.telemetry.metrics import Metrics


def tiered(config: cfg.Config) -> dict[str, cfg.ModelConfig]:
    """The models with a cheap and a strong tier."""
    return {
        name: model
        for name, model in config.models.items()
        if model.route == "complexity" and len(model.candidates) > 1
    }


def checked(loaded: Loaded) -> Loaded:
    """The same, with what is wrong with the files that the config names: weights, certificates,
    signing keys, folders."""
    config = loaded.config
    if config is None:
        return loaded
    problems = [
        *_problems(config),
        *certificates.problems(config),
        *identity.problems(config),
        *metrics_folder.problems(config),
    ]
    if problems:
        return replace(loaded, config=None, problems=problems)
    return replace(loaded, warnings=[*loaded.warnings, *metrics_folder.warnings(config)])


def _problems(config: cfg.Config) -> Iterator[Problem]:
    for name, model in tiered(config).items():
        path = model.complexity.weights
        if path is None:
            continue
        field = join("models", name) + ".complexity.weights"
        try:
            parse(Path(path).read_bytes())
        except OSError as error:
            yield Problem(field, f"cannot be read: {error.strerror or error}")
        except BadWeights as error:
            yield Problem(field, str(error))


class CascadeFactory:
    """The choosers of one process, by model; replaced when their settings or weights change."""

    def __init__(self, share: WorkerShare, estimate: EstimateOf, metrics: Metrics, rng: Random, clock: Clock) -> None:
        self._rng = rng
        self._background = TaskPool()
        self._share = share
        self._cascaded = metrics.cascades.count
        self._estimate = estimate
        self._clock = clock
        self._weights: dict[str | None, tuple[str, PromptScorer]] = {}
        self._choosers: dict[str, tuple[object, TierChooser]] = {}
        self._files: dict[tuple[str, str, str | None], ProposingFile] = {}

    async def load(self, config: cfg.Config) -> None:
        """Read the weights that this config needs, in a thread. OSError or BadWeights for a bad file."""
        paths = {model.complexity.weights for model in tiered(config).values()}
        if paths:
            self._weights = await asyncio.to_thread(self._read, paths)

    def _read(self, paths: set[str | None]) -> dict[str | None, tuple[str, PromptScorer]]:
        weights = {}
        for path in paths:
            data = b"" if path is None else Path(path).read_bytes()
            digest, entry = hashlib.sha256(data).hexdigest(), self._weights.get(path)
            if entry is None or entry[0] != digest:
                entry = digest, PromptScorer(shipped() if path is None else parse(data))
            weights[path] = entry
        return weights

    def scorers(self, config: cfg.Config) -> Mapping[str, ComplexityScorer]:
        """The scorer of each model with tiers. Call `load` first."""
        models = tiered(config)
        for removed in self._choosers.keys() - models.keys():
            del self._choosers[removed]
        return {
            name: ComplexityScorer(self._chooser(name, model.complexity), self._estimate)
            for name, model in models.items()
        }

    def layer(self, config: cfg.Config, accounting: Gate) -> Layer | None:
        """The layer for calls that may ask both tiers, or None. `accounting` records the shadow calls."""
        parts = self._shadow(config, accounting), self._cascade(config)
        layers = [part for part in parts if part is not None]
        return (lambda inner: compose(tuple(layers), inner)) if layers else None

    async def close(self) -> None:
        """Cancel the shadow calls, and the calibrations that they led to."""
        await self._background.close()
        for file in self._files.values():
            await file.close()

    def _file(self, name: str, model: cfg.ModelConfig) -> ProposingFile:
        """The shadow file of a model; it counts its calls, also over a reload."""
        key = name, model.shadow.path, model.complexity.weights
        if key not in self._files:
            self._files[key] = ProposingFile(model.shadow.path, name, model.complexity.weights)
        return self._files[key]

    def _shadow(self, config: cfg.Config, accounting: Gate) -> ShadowLayer | None:
        samples = {
            name: ShadowSample(model.shadow.share, model.shadow.max_per_minute, self._file(name, model))
            for name, model in tiered(config).items()
            if model.shadow.share
        }
        if not samples:
            return None
        return ShadowLayer(samples, accounting, self._estimate, self._background, self._rng, self._clock)

    def _cascade(self, config: cfg.Config) -> CascadeLayer | None:
        policies = {
            name: CheckPolicy(frozenset(model.cascade.checks), model.cascade.min_logprob)
            for name, model in tiered(config).items()
            if model.cascade.enabled
        }
        if not policies:
            return None
        total_s = {name: upstream.timeouts.total for name, upstream in config.upstreams.items()}
        return CascadeLayer(policies, self._estimate, total_s.__getitem__, self._cascaded, self._clock)

    def _chooser(self, name: str, settings: ComplexityConfig) -> TierChooser:
        """A chooser remembers scores, so other weights need another chooser."""
        digest, scorer = self._weights[settings.weights]
        entry = self._choosers.get(name)
        if entry is None or entry[0] != (settings, digest):
            entry = self._choosers[name] = ((settings, digest), self._new_chooser(scorer, settings))
        return entry[1]

    def _new_chooser(self, scorer: PromptScorer, settings: ComplexityConfig) -> TierChooser:
        cap, dollars = settings.max_strong_share_per_key, self._share.part(settings.usd_per_day)
        bucket = None if dollars is None else DollarBucket(round(dollars), self._clock())
        return TierChooser(scorer, settings.strong_share, 1.0 if cap is None else cap, bucket)
