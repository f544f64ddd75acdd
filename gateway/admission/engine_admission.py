"""Whether an engine takes one more call: the ledger of its KV cache and the limit that finds itself, together."""

from typing import Final, NamedTuple

from gateway.admission.concurrency_limit import CEILING, ConcurrencyLimit, EngineReading
from gateway.admission.kv_ledger import KvDemand, KvLedger
from gateway.core.kv_tokens import KvTokens

PAUSE_S: Final = 0.1
"""An engine that has refused a call as it is full gets the next one after this many seconds."""


class EngineLoad(NamedTuple):
    """An engine's metrics: calls running and waiting in it, and the used share of its KV cache.

    `preempted` counts since the engine started; the cache has `capacity` tokens in blocks of `block`. None: untold.
    """

    running: int
    waiting: int
    kv: float | None
    preempted: int = 0
    capacity: int | None = None
    block: int | None = None


class EngineAdmission:
    """The admission of one upstream in one of `workers` processes that share it."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self.ledger = KvLedger()
        self.limit = ConcurrencyLimit(max(1, CEILING // workers))
        self.engine_tokens: int | None = None
        """Tokens in the engine's cache by its own figure, whoever they belong to."""
        self.closed_until = 0.0
        """Until then the engine gets no call, because it has just refused one."""

    def read(self, state: EngineLoad, in_flight: int, waiting: bool, now: float) -> None:
        """Take the engine's metrics. `in_flight` are this process's calls; `waiting`: some wait for room here."""
        preempted = self.limit.read(EngineReading(state.running, state.waiting, state.preempted, now))
        if state.capacity is None:
            return
        if 0 < self.ledger.capacity != state.capacity // self._workers:
            self.limit.restart()
        self.ledger.learn_capacity(state.capacity // self._workers, state.block or 1)
        if state.kv is not None:
            self.engine_tokens = int(state.kv * state.capacity)
            # Readings are up to a second old, so that a few calls more or less are no others.
            shared = state.running > 1.25 * in_flight * self._workers + 2
            self.ledger.learn_usage(
                self.engine_tokens // self._workers, preempted=preempted, shared=shared, waiting=waiting, now=now
            )

    def kv_tokens(self, now: float) -> KvTokens | None:
        """The cache by the ledger and by the engine; None while its size is unknown."""
        if not self.ledger.capacity:
            return None
        return KvTokens(self.ledger.capacity * self._workers, self.ledger.tokens(now), self.engine_tokens)

    def fits(self, demand: KvDemand | None, now: float) -> bool:
        """Whether the cache has room for the call."""
        return now >= self.closed_until and (demand is None or self.ledger.fits(demand, now))

    def refused(self, in_flight: int, now: float) -> None:
        """The engine has refused a call as it is full; `in_flight` are this process's calls, that one included."""
        self.limit.refused(in_flight, now)
        self.closed_until = now + PAUSE_S

    def hold(self, demand: KvDemand | None, now: float) -> None:
        """Enter an admitted call."""
        if demand is not None:
            self.ledger.hold(demand, now)

    def release(self, demand: KvDemand | None, now: float) -> None:
        """Strike a call out of the ledger, however it ended."""
        if demand is not None:
            self.ledger.release(demand, now)
