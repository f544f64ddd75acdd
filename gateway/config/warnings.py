"""Warnings: what a config may say but hardly means."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from msgspec.structs import asdict

from gateway.config.model import BaselinePriceConfig, Config, PriceConfig
from gateway.config.problems import did_you_mean, join, quoted
from gateway.core.units import NANO, usd

_LEAST: Final = NANO // 10_000
"""Nano-dollars for a million tokens; no provider charges less, and few charge more than this for one token."""
_PATTERN: Final = frozenset("*?[")


def unmatched_patterns(config: Config) -> Iterator[str]:
    """A warning for each pattern of `keys.models` that matches no model."""
    for i, key in enumerate(config.keys):
        for j, pattern in enumerate(key.models):
            if pattern and not any(fnmatchcase(name, pattern) for name in config.models):
                owner = next((name for name, model in config.models.items() if pattern in model.aliases), None)
                hint = did_you_mean(pattern, config.models) if owner is None else f"; it is an alias of {quoted(owner)}"
                yield f"keys[{i}].models[{j}]: {quoted(pattern)} matches no model{hint}"


def odd_models(config: Config) -> Iterator[str]:
    """A warning for each public model or name sent upstream that reads like a pattern: none is one."""
    for name, model in config.models.items():
        path = join("models", name)
        if _PATTERN & set(name):
            yield (
                f"{path}: {quoted(name)} is a plain name here, not a pattern, and matches no other name; "
                "patterns of names that clients ask for go into aliases"
            )
            continue
        for i, candidate in enumerate(model.candidates):
            if _PATTERN & set(candidate.model):
                yield f"{path}.candidates[{i}].model: {quoted(candidate.model)} is sent as it is, not a pattern"


def prices_per_token(config: Config) -> Iterator[str]:
    """A warning for each price that looks like the price of one token instead of a million."""
    for name, model in config.models.items():
        path = join("models", name)
        prices: list[tuple[str, PriceConfig | BaselinePriceConfig | None]] = [
            (f"{path}.candidates[{i}].price", entry.price) for i, entry in enumerate(model.candidates)
        ]
        if model.baseline is not None and not isinstance(model.baseline, str):
            prices.append((f"{path}.baseline.price", model.baseline.price))
        for place, price in prices:
            for field, amount in asdict(price).items() if price is not None else ():
                if amount is not None and 0 < amount < _LEAST:
                    yield (
                        f"{place}.{field}: {usd(amount)} USD is for a million tokens; "
                        f"for one token? write {usd(amount * 1_000_000)}"
                    )
