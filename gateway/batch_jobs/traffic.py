"""What the runner of batches needs of the gateway: to send a line, and to know who may send and how much."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.batch_jobs.results import NOTHING, LineUsage
from gateway.batch_jobs.room import Admission
from gateway.batch_jobs.verdict import BudgetState
from gateway.core.errors import Rejection


class LineAnswer(NamedTuple):
    """The answer to a line, as a live call would have got it; `rejection` says why, if it is an error of the gateway.

    `batch_size`: callers that shared the upstream call, 0 if it was not merged.
    """

    status: int
    body: bytes
    request_id: str
    rejection: Rejection | None = None
    usage: LineUsage = NOTHING
    batch_size: int = 0
    budget: BudgetState = ""


class LineOwner(NamedTuple):
    """Whose calls lines are: a key, or one that an identity provider vouches for with the rights of a `group`."""

    key: str
    group: str = ""


class LineTraffic(Protocol):
    """The gateway's own calls."""

    def knows(self, owner: LineOwner) -> bool:
        """Whether the key, or the group, exists."""

    def refused_model(self, owner: LineOwner, model: str) -> tuple[str, str] | None:
        """The error code and the sentence about a model that the key cannot have, else None."""

    def wait_for(self, owner: LineOwner) -> float:
        """Seconds until the key's limits admit any call; 0.0 if they may admit one now."""

    def upstreams(self, model: str) -> Sequence[str]:
        """The upstreams that calls of this model go to first."""

    def admission(self, upstream: str) -> Admission:
        """The admission's state."""

    async def send(self, owner: LineOwner, endpoint: str, body: bytes) -> LineAnswer:
        """Send a call of the key, as class `batch`. It ends as a live call does."""
