"""The sections of a model that has a cheap and a strong tier."""

from typing import Literal, get_args

from gateway.config.scalars import Amount, Flag, LogProbability, Path, Section, ShareScalar

Check = Literal["finish", "empty", "refusal", "json", "arithmetic", "logprob"]


class ComplexityConfig(Section, frozen=True, kw_only=True):
    """Which calls are strong: at most this share, at most these nano-dollars; None is no bound.

    `weights` is a file that `sluice calibrate` has written; None: those of the package.
    """

    strong_share: ShareScalar = 0.3
    usd_per_day: Amount | None = None
    max_strong_share_per_key: ShareScalar | None = None
    weights: Path | None = None


class CascadeConfig(Section, frozen=True, kw_only=True):
    """Whether the cheap candidate is asked first, and what its answers are asked."""

    enabled: Flag = False
    checks: tuple[Check, ...] = get_args(Check)
    min_logprob: LogProbability | None = None


class ShadowConfig(Section, frozen=True, kw_only=True):
    """The share of calls that the other tier answers too, and the file for both answers."""

    share: ShareScalar = 0.0
    path: Path = "./sluice-shadow.jsonl"
