"""The circuit breakers of one upstream: one for each of its models at each endpoint.

A model that fails shuts nothing else. All of them open together only by what says something about the host
(no connection, no TLS), or if several models have opened and none has answered since.
"""

from collections.abc import Callable
from typing import Final

from gateway.resilience.circuit_breaker import CLOSED, CircuitBreaker
from gateway.resilience.last_failures import LastFailures

SEVERAL: Final = 2
"""So many models that are open at once tell of the upstream, if no other one answers meanwhile."""

Scope = tuple[str, str]
"""A model's name at the upstream, and an endpoint."""


class UpstreamBreakers:
    """The breakers of one upstream, made when they are first asked for. `now` is in monotonic seconds."""

    __slots__ = ("_answered_at", "_make", "drained", "failures", "scopes", "troubled")

    def __init__(self, make: Callable[[], CircuitBreaker]) -> None:
        self._make = make
        self.scopes: dict[Scope, CircuitBreaker] = {}
        """By model and endpoint; both come from the config and the table of endpoints, so it stays small."""
        self.troubled = False
        """Whether a breaker is open, or the host has failed since all of them answered."""
        self.failures = LastFailures()
        self.drained = False
        """Whether an operator has taken the upstream out."""
        self._answered_at = -1.0  # when any model answered last while `troubled`

    def of(self, model: str, endpoint: str) -> CircuitBreaker:
        """The breaker of a model at an endpoint."""
        breaker = self.scopes.get((model, endpoint))
        if breaker is None:
            breaker = self.scopes[model, endpoint] = self._make()
            if self.drained:
                breaker.hold()
        return breaker

    def record_failure(self, model: str, endpoint: str, now: float, permit: int, *, of_host: bool = False) -> None:
        """Records a failed attempt. `of_host`: no model of this upstream would have fared better."""
        breaker = self.of(model, endpoint)
        was_open = breaker.is_open
        breaker.record("failure", now, permit)
        self.troubled = self.troubled or of_host or breaker.is_open
        if of_host:
            for other in self.scopes.values():
                if other is not breaker:
                    other.record_host_failure(now)
        elif breaker.is_open and not was_open and self._several_failed():
            for other in self.scopes.values():
                other.record_host_failure(now, out=True)

    def record_success(self, model: str, endpoint: str, now: float, permit: int) -> None:
        """Records an answer."""
        breaker = self.of(model, endpoint)
        breaker.record("success", now, permit)
        if self.troubled:
            self.answered(breaker, now)

    def answered(self, breaker: CircuitBreaker, now: float) -> None:
        """Follows a success while `troubled`: the host is well, so the other models may be probed at once."""
        self._answered_at = now
        if breaker.is_open:
            return
        others = [other for other in self.scopes.values() if other is not breaker]
        for other in others:
            other.host_recovered(now)
        self.troubled = any(other.is_open for other in others)

    def drain(self) -> None:
        """Send no further calls; those under way and those that wait for a slot go on."""
        self.drained = True
        for breaker in self.scopes.values():
            breaker.hold()

    def close(self, now: float) -> None:
        """Close all breakers, and end a drain."""
        self.drained = self.troubled = False
        for breaker in self.scopes.values():
            breaker.reset(now)

    def state(self, now: float) -> int:
        """The worst state of any model: CLOSED, HALF_OPEN or OPEN."""
        return max((breaker.state(now) for breaker in self.scopes.values()), default=CLOSED)

    def _several_failed(self) -> bool:
        opened = {model: breaker.opened_at for (model, _), breaker in self.scopes.items() if breaker.is_open}
        return len(opened) >= SEVERAL and self._answered_at < min(opened.values())
