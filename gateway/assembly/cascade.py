"""From the config to what chooses between a model's cheap and strong candidates; it outlives a reload."""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from msgspec.structs import replace

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
from gateway.routing.cascade.shadow_file import ShadowFile
from gateway.routing.complexity.quota import Purse
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.selector import Chooser
from gateway.routing.complexity.tiers import ComplexityScorer, EstimateOf
from gateway.routing.complexity.weights import BadWeights, parse, shipped
from gateway.telemetry.metrics import Metrics, counter


def tiered(config: cfg.Config) -> dict[str, cfg.ModelConfig]:
    """The models whose calls have two tiers to choose from."""
    return {
        name: model
        for name, model in config.models.items()
        if model.route == "complexity" and len(model.candidates) > 1
    }


def checked(loaded: Loaded) -> Loaded:
    """The same, with what is wrong with files of weights that the config names."""
    problems = list(_problems(loaded.config)) if loaded.config is not None else []
    return replace(loaded, config=None, problems=problems) if problems else loaded


def _problems(config: cfg.Config) -> Iterator[Problem]:
    for name, model in tiered(config).items():
        path = model.complexity.weights
        if path is None:
            continue
        place = join("models", name) + ".complexity.weights"
        try:
            parse(Path(path).read_bytes())
        except OSError as error:
            yield Problem(place, f"cannot be read: {error.strerror or error}")
        except BadWeights as error:
            yield Problem(place, str(error))


class CascadeFactory:
    """The choosers of one process, by model. They are kept while their settings and weights are the same."""

    def __init__(
        self, share: WorkerShare, estimate: EstimateOf, metrics: Metrics, rng: Random, clock: Clock
    ) -> None:
        self._rng = rng
        self._background = TaskPool()
        self._share = share
        self._cascaded = counter(metrics.cascades)
        self._estimate = estimate
        self._clock = clock
        self._weights: dict[str | None, tuple[str, PromptScorer]] = {}
        self._choosers: dict[str, tuple[object, Chooser]] = {}

    async def load(self, config: cfg.Config) -> None:
        """Read the weights that this config needs, off the loop. OSError or BadWeights for a bad file."""
        wanted = {model.complexity.weights for model in tiered(config).values()}
        if wanted:
            self._weights = await asyncio.to_thread(self._read, wanted)

    def _read(self, wanted: set[str | None]) -> dict[str | None, tuple[str, PromptScorer]]:
        found = {}
        for path in wanted:
            data = b"" if path is None else Path(path).read_bytes()
            digest, known = hashlib.sha256(data).hexdigest(), self._weights.get(path)
            if known is None or known[0] != digest:
                known = digest, PromptScorer(shipped() if path is None else parse(data))
            found[path] = known
        return found

    def scorers(self, config: cfg.Config) -> Mapping[str, ComplexityScorer]:
        """What orders the candidates of each model with tiers; its weights have been loaded."""
        models = tiered(config)
        for gone in self._choosers.keys() - models.keys():
            del self._choosers[gone]
        return {
            name: ComplexityScorer(self._chooser(name, model.complexity), self._estimate)
            for name, model in models.items()
        }

    def layer(self, config: cfg.Config, bill: Gate) -> Layer | None:
        """For calls that may ask both tiers; None where there are none. `bill` books shadows."""
        layers = [one for one in (self._shadow(config, bill), self._cascade(config)) if one is not None]
        return (lambda inner: compose(tuple(layers), inner)) if layers else None

    async def close(self) -> None:
        """End what nobody waits for."""
        await self._background.close()

    def _shadow(self, config: cfg.Config, bill: Gate) -> ShadowLayer | None:
        samples = {
            name: ShadowSample(model.shadow.share, ShadowFile(model.shadow.path))
            for name, model in tiered(config).items()
            if model.shadow.share
        }
        found = ShadowLayer(samples, bill, self._estimate, self._background, self._rng, self._clock)
        return found if samples else None

    def _cascade(self, config: cfg.Config) -> CascadeLayer | None:
        terms = {
            name: CheckPolicy(frozenset(model.cascade.checks), model.cascade.min_logprob)
            for name, model in tiered(config).items()
            if model.cascade.enabled
        }
        total_s = {name: one.timeouts.total for name, one in config.upstreams.items()}
        found = CascadeLayer(terms, self._estimate, total_s.__getitem__, self._cascaded, self._clock)
        return found if terms else None

    def _chooser(self, name: str, settings: ComplexityConfig) -> Chooser:
        """What it remembers is of scores, and those of other weights are others."""
        digest, scorer = self._weights[settings.weights]
        known = self._choosers.get(name)
        if known is None or known[0] != (settings, digest):
            known = self._choosers[name] = ((settings, digest), self._made(scorer, settings))
        return known[1]

    def _made(self, scorer: PromptScorer, settings: ComplexityConfig) -> Chooser:
        cap, dollars = settings.max_strong_share_per_key, self._share.part(settings.usd_per_day)
        purse = None if dollars is None else Purse(round(dollars), self._clock())
        return Chooser(scorer, settings.strong_share, 1.0 if cap is None else cap, purse)
