"""The caller's types: a key's name, priority class, limits and account."""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple, Protocol

from msgspec import Struct

Priority = Literal["interactive", "batch"]
INTERACTIVE: Final = "interactive"
BATCH: Final = "batch"


class LimitStatus(Struct, frozen=True, gc=False):
    """What a key has left now, and the seconds until its limits are fully restored."""

    requests_left: int
    requests_reset: float
    tokens_left: int
    tokens_reset: float


class KeyLimits(NamedTuple):
    """The limits of one key; None means no limit. `usd_per_day` is in nano-dollars."""

    rpm: float | None = None
    tpm: float | None = None
    concurrency: int | None = None
    usd_per_day: int | None = None


class LimitAccount(Protocol):
    """A key's account, as far as response headers need it."""

    @property
    def limits(self) -> KeyLimits:
        """The key's limits."""

    def status(self, now: float) -> LimitStatus:
        """What is left at `now`."""


class Caller:
    """The key a call was made with: its name, its public models (None: all), its account if it has limits.

    `engine_fields` lists the body fields that steer the engine and that this key may send; `*` means all.
    `label` stands for it in metrics and `key` is the key whose rights it has: both its name, unless an identity
    provider vouches for it.
    """

    __slots__ = ("account", "engine_fields", "key", "label", "models", "name", "priority")

    def __init__(
        self,
        name: str,
        models: frozenset[str] | None,
        account: LimitAccount | None = None,
        priority: Priority = INTERACTIVE,
        engine_fields: Collection[str] = (),
        label: str = "",
        key: str = "",
    ) -> None:
        self.name = name
        self.label = label or name
        self.key = key or name
        self.models = models
        self.account = account
        self.priority = priority
        self.engine_fields = engine_fields

    def may_use(self, model: str) -> bool:
        """Whether the key's patterns cover this public model."""
        return self.models is None or model in self.models


STRANGER: Final = Caller("", frozenset())
"""The caller of a request that nobody has authenticated yet."""
