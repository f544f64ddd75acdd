"""RouteLLM's metrics PGR, APGR and CPT of a ranking of prompts, exact, with bootstrap intervals.

PGR is the share of the gap between the models' accuracies that a share of strong calls recovers, APGR the
area under it over all shares (0.5 is random), CPT(x) the share needed for a PGR of x (arXiv 2406.18665).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAMPLES: Final = 200
"""Bootstrap samples behind every interval."""

_SEED: Final = 20240800
_NO_GAP: Final = 1e-9
FloatArray = NDArray[np.float64]


class Curve(NamedTuple):
    """PGR over the share of strong calls; rows with equal scores are drawn at random: a straight line."""

    share: FloatArray
    recovered: FloatArray

    @property
    def apgr(self) -> float:
        """The area under the curve."""
        return float(np.trapezoid(self.recovered, self.share))

    def cpt(self, pgr: float) -> float:
        """Return the smallest share of strong calls that reaches this PGR; 1 if none does."""
        if pgr <= 0:
            return 0.0
        reached = np.flatnonzero(self.recovered >= pgr)
        if not len(reached):
            return 1.0
        at = int(reached[0])
        (low, high), (left, right) = self.recovered[at - 1 : at + 1], self.share[at - 1 : at + 1]
        return float(left + (pgr - low) / (high - low) * (right - left))


def curve(scores: ArrayLike, gains: ArrayLike) -> Curve:
    """Return the curve of sending the highest scores to the strong model first.

    Where the strong model has no lead there is no gap to recover: the curve is flat at 0.
    """
    falling, starts, counts = _groups(np.asarray(scores, float))
    sums = np.cumsum(np.add.reduceat(np.asarray(gains, float)[falling], starts))
    share = np.concatenate([[0.0], np.cumsum(counts) / counts.sum()])
    if sums[-1] <= _NO_GAP:
        return Curve(share, np.zeros(len(share)))
    return Curve(share, np.concatenate([[0.0], sums[:-1] / sums[-1], [1.0]]))


def _groups(scores: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the order of falling scores, and the start and count of each score in it."""
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
    """Measure a ranking on rows that it was not trained on."""
    full = curve(scores, gains)
    low, high = interval(bootstrap([scores], gains)[0])
    return Apgr(full.apgr, low, high, full.cpt(0.5), full.cpt(0.8))


def interval(values: ArrayLike) -> tuple[float, float]:
    """Return the bounds of the middle 95 %; samples without a gap (NaN) tell nothing."""
    known = np.asarray(values, float)
    known = known[~np.isnan(known)]
    if not len(known):
        return 0.0, 0.0
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def measure_chance(gains: ArrayLike, orders: int = SAMPLES) -> Apgr:
    """Measure many random rankings: their means, and the interval of a single one."""
    rng = np.random.default_rng(_SEED)
    gain = np.asarray(gains, float)
    curves = [curve(rng.random(len(gain)), gain) for _ in range(orders)]
    areas = [each.apgr for each in curves]
    low, high = interval(areas)
    cpt50, cpt80 = (float(np.mean([each.cpt(pgr) for each in curves])) for pgr in (0.5, 0.8))
    return Apgr(float(np.mean(areas)), low, high, cpt50, cpt80)


def bootstrap(orders: list[ArrayLike], gains: ArrayLike, samples: int = SAMPLES) -> FloatArray:
    """Return the APGR of each ranking (row) on each bootstrap sample (column); all use the same samples.

    It is NaN for samples in which the strong model has no lead.
    """
    gain = np.asarray(gains, float)
    draws = np.random.default_rng(_SEED).integers(0, len(gain), (samples, len(gain)))
    gap = np.array([gain[rows].sum() > _NO_GAP for rows in draws])
    areas = np.array([[curve(np.asarray(order, float)[rows], gain[rows]).apgr for rows in draws] for order in orders])
    return np.where(gap, areas, np.nan)
