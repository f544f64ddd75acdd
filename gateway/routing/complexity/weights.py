"""The scorer's weights as a file: the numbers, their provenance, and a hash of both."""

import hashlib
from importlib.resources import files
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from gateway.routing.complexity.features import NAMES

FORMAT: Final = 1
PERCENTS: Final = 101
"""Length of `percentiles`: the scores at 0 %, 1 %, ... 100 %."""


class BadWeights(Exception):
    """Not a weights file, edited by hand, or of another version of the features."""


class Weights(Struct, frozen=True, forbid_unknown_fields=True):
    """A linear model of the strong model's gain; 0.1 is ten more right answers in a hundred.

    `dense` and `means` are by feature name. `grams` maps a word, or two separated by a space, to its weight
    times its rarity, and to its squared rarity. `table` calibrates: from this score on, this gain.
    `percentiles` are scores of prompts that were not in the training set.
    """

    provenance: dict[str, str | int | float]
    bias: float
    dense: dict[str, float]
    means: dict[str, float]
    grams: dict[str, tuple[float, float]]
    table: list[tuple[float, float]]
    percentiles: list[float]
    format: int = FORMAT
    sha256: str = ""


def dump(weights: Weights) -> bytes:
    """Return the file's content: JSON with a hash of everything else."""
    unsigned = msgspec.structs.replace(weights, sha256="")
    signed = msgspec.structs.replace(unsigned, sha256=_hash(unsigned))
    return msgspec.json.format(msgspec.json.encode(signed)) + b"\n"


def parse(data: bytes) -> Weights:
    """Parse a file's content. Raises BadWeights with the problem."""
    try:
        weights = msgspec.json.decode(data, type=Weights)
    except msgspec.DecodeError as error:
        raise BadWeights(f"not a weights file: {error}") from None
    if weights.format != FORMAT or (*weights.dense,) != NAMES or (*weights.means,) != NAMES:
        raise BadWeights("these weights belong to another version of Sluice; train them again")
    if weights.sha256 != _hash(msgspec.structs.replace(weights, sha256="")):
        raise BadWeights("the hash in the file does not match its numbers: it was edited or truncated")
    ordered = all(low <= high for low, high in pairwise(weights.percentiles))
    if len(weights.percentiles) != PERCENTS or not weights.table or not ordered:
        raise BadWeights("its tables are incomplete")
    return weights


def shipped() -> Weights:
    """Return the weights shipped in the package."""
    return parse(files("gateway.routing.complexity").joinpath("weights.json").read_bytes())


def _hash(weights: Weights) -> str:
    return hashlib.sha256(msgspec.json.encode(weights)).hexdigest()
