"""The sections of a model with a cheap and a strong tier."""

from typing import Literal, get_args

from gateway.config.scalars import Amount, Count, Flag, LogProbability, Path, Section, ShareScalar

Check = Literal["finish", "empty", "refusal", "json", "arithmetic", "logprob"]


class ComplexityConfig(Section, frozen=True, kw_only=True):
    """Bounds on the strong tier: its share of the calls, and nano-dollars a day (None: unbounded).

    `weights` is a file from `sluice calibrate`; None stands for the shipped weights.
    """

    strong_share: ShareScalar = 0.3
    usd_per_day: Amount | None = None
    max_strong_share_per_key: ShareScalar | None = None
    weights: Path | None = None


class CascadeConfig(Section, frozen=True, kw_only=True):
    """Whether the cheap candidate answers first, and which checks its answers must pass."""

    enabled: Flag = False
    checks: tuple[Check, ...] = get_args(Check)
    min_logprob: LogProbability | None = None


class ShadowConfig(Section, frozen=True, kw_only=True):
    """Bounds on the calls that the other tier answers as well, and the file for both answers."""

    share: ShareScalar = 0.0
    max_per_minute: Count | None = None
    path: Path = "./sluice-shadow.jsonl"
