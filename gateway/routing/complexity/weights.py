"""What the scorer has learned, as a file: numbers, where they come from, and a hash of both."""

import hashlib
from importlib.resources import files
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from gateway.routing.complexity.features import NAMES

FORMAT: Final = 1
PERCENTS: Final = 101
"""Numbers in `percentiles`: the scores at 0 %, 1 %, ... 100 %."""


class BadWeights(Exception):
    """The file is no weights file, was changed by hand, or belongs to another version of the features."""


class Weights(Struct, frozen=True, forbid_unknown_fields=True):
    """A linear model of the strong model's gain over the cheap one, 0.1 being ten right answers in a hundred.

    `dense` and `means` follow the features' names. `grams` maps a word, or two with a space between them, to
    its weight times its rarity, and the square of its rarity. `table` calibrates: from this score on, this
    gain. `percentiles` are scores of prompts that the model was not trained on.
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
    """The file's bytes: JSON with a hash of all the rest in it."""
    plain = msgspec.structs.replace(weights, sha256="")
    return (
        msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(plain, sha256=_hash(plain)))) + b"\n"
    )


def parse(data: bytes) -> Weights:
    """Read a file; BadWeights tells what is wrong with it."""
    try:
        weights = msgspec.json.decode(data, type=Weights)
    except msgspec.DecodeError as error:
        raise BadWeights(f"this is no weights file: {error}") from None
    if weights.format != FORMAT or (*weights.dense,) != NAMES or (*weights.means,) != NAMES:
        raise BadWeights("these weights belong to another version of Sluice; train them again")
    if weights.sha256 != _hash(msgspec.structs.replace(weights, sha256="")):
        raise BadWeights("the hash in the file does not match its numbers: it was changed or cut")
    ordered = all(one <= next_ for one, next_ in pairwise(weights.percentiles))
    if len(weights.percentiles) != PERCENTS or not weights.table or not ordered:
        raise BadWeights("its tables are incomplete")
    return weights


def shipped() -> Weights:
    """The weights in the package."""
    return parse(files("gateway.routing.complexity").joinpath("weights.json").read_bytes())


def _hash(weights: Weights) -> str:
    return hashlib.sha256(msgspec.json.encode(weights)).hexdigest()
