"""A generation: what is built from one config. A call stays with its generation across reloads."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.auth.model_names import ModelNames
from gateway.core.call import Credentials, Stack
from gateway.http.server.body import BodyReader
from gateway.http.server.cors import Cors
from gateway.http.server.model_list import ModelList
from gateway.http.server.stored_api import StoredApi
from gateway.http.ticker import Ticker


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """One config as built, as far as `RequestHandler` needs it. `number` counts from 1."""

    number: int
    stack: Stack
    models: ModelList
    body: BodyReader
    cors: Cors
    ticker: Ticker
    heartbeat_s: float | None
    names: ModelNames
    engine_models: frozenset[str]
    """Public models that an engine of a known kind may serve, itself or as a fallback."""
    stored: StoredApi | None = None
    """Files and batches, if they are enabled."""
    learn_signer: Callable[[Credentials, float], Awaitable[bool]] | None = None
    """Set if identity providers are configured: looks for the signing key of a refused token, once in a while.

    Returns whether the call may be admitted now.
    """

    def may_reach_engine(self, name: str) -> bool:
        """Whether an engine of a known kind may serve the model of this name or alias."""
        route = self.names.find(name)
        return route is not None and route.name in self.engine_models
