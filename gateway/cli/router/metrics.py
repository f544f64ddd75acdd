"""How good an order of prompts is: RouteLLM's PGR, APGR and CPT, exact, and their uncertainty.

PGR is the part of the gap between the two models' accuracies that a share of strong calls recovers; APGR the
area under it over all shares (0.5 is random), CPT(x) the share that PGR x needs (arXiv 2406.18665).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAMPLES: Final = 200
"""Bootstrap samples behind every interval."""

_SEED: Final = 20240800
FloatArray = NDArray[np.float64]


class Curve(NamedTuple):
    """PGR over the share of strong calls; rows of one score are drawn at random, so a straight line."""

    share: FloatArray
    recovered: FloatArray

    @property
    def apgr(self) -> float:
        """The area under it."""
        return float(np.trapezoid(self.recovered, self.share))

    def cpt(self, wanted: float) -> float:
        """The smallest share of strong calls that recovers this part of the gap."""
        at = int(np.argmax(self.recovered >= wanted))
        if not at:
            return 0.0
        (low, high), (left, right) = self.recovered[at - 1 : at + 1], self.share[at - 1 : at + 1]
        return float(left + (wanted - low) / (high - low) * (right - left))


def curve(scores: ArrayLike, gains: ArrayLike) -> Curve:
    """The curve of asking the strong model for the highest scores first."""
    falling, starts, counts = _groups(np.asarray(scores, float))
    sums = np.add.reduceat(np.asarray(gains, float)[falling], starts)
    total = float(sums.sum())
    return Curve(
        np.concatenate([[0.0], np.cumsum(counts) / counts.sum()]),
        np.concatenate([[0.0], np.cumsum(sums) / total]) if total else np.zeros(len(counts) + 1),
    )


def _groups(scores: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The order of falling scores, and where in it each score begins and how often it stands."""
    falling = np.argsort(-scores, kind="stable")
    _, starts, counts = np.unique(-scores[falling], return_index=True, return_counts=True)
    return falling, starts, counts


class Apgr(NamedTuple):
    """APGR with its 95 % interval, and the shares that recover 50 and 80 % of the gap."""

    apgr: float
    low: float
    high: float
    cpt50: float
    cpt80: float

    def __str__(self) -> str:
        return f"{self.apgr:.3f} [{self.low:.3f}, {self.high:.3f}]"


def measure(scores: ArrayLike, gains: ArrayLike) -> Apgr:
    """Measure an order on rows that it was not learned from."""
    whole = curve(scores, gains)
    areas = bootstrap([scores], gains)[0]
    low, high = np.quantile(areas, [0.025, 0.975])
    return Apgr(whole.apgr, float(low), float(high), whole.cpt(0.5), whole.cpt(0.8))


def bootstrap(orders: list[ArrayLike], gains: ArrayLike, samples: int = SAMPLES) -> FloatArray:
    """APGR of each order over the same resampled rows: one line an order, one column a sample."""
    gain = np.asarray(gains, float)
    draws = np.random.default_rng(_SEED).integers(0, len(gain), (samples, len(gain)))
    drawn = [[curve(np.asarray(order, float)[rows], gain[rows]).apgr for rows in draws] for order in orders]
    return np.array(drawn)
