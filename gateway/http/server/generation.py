"""What one call goes by, from its head to its last byte, whatever is reloaded meanwhile."""

from dataclasses import dataclass

from gateway.core.call import Stack
from gateway.http.server.body import BodyReader
from gateway.http.server.cors import Cors
from gateway.http.server.model_list import ModelList
from gateway.http.ticker import Ticker


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """What one config has been made into, as far as `Serve` needs it. `number` counts from 1."""

    number: int
    stack: Stack
    models: ModelList
    body: BodyReader
    cors: Cors
    sweep: Ticker
    heartbeat_s: float | None
