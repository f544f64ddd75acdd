"""Who has asked for a pause: a model at an upstream, one of its endpoints, or the upstream's whole account."""

from typing import Final

from gateway.core.call import Candidate
from gateway.queueing.advertised_quota import Quotas

_ALL: Final = ""


class Holds:
    """When candidates are due again; until then others go first. Times are in monotonic seconds.

    A hold is by upstream and its name of the model, so that it covers every public model that leads there. A
    model whose advertised quota (`quotas`, kept by the queues) is used up counts as held.
    """

    __slots__ = ("due", "quotas")

    def __init__(self, quotas: Quotas | None = None) -> None:
        self.due: dict[tuple[str, str, str], float] = {}
        """By upstream, model and endpoint, `_ALL` for any; from the config, so it stays small."""
        self.quotas: Quotas = {} if quotas is None else quotas

    def hold_model(self, candidate: Candidate, until: float, endpoint: str = _ALL) -> None:
        """Hold a candidate's model, or only one endpoint of it."""
        self.due[candidate.upstream, candidate.model, endpoint] = until

    def hold_upstream(self, candidate: Candidate, until: float) -> None:
        """Hold all models of a candidate's upstream."""
        self.due[candidate.upstream, _ALL, _ALL] = until

    def held(self, candidate: Candidate, endpoint: str, tokens: int, now: float) -> bool:
        """Whether a call of so many tokens should go elsewhere if it can."""
        upstream, model, due = candidate.upstream, candidate.model, self.due
        if due and (
            due.get((upstream, model, _ALL), 0.0) > now
            or due.get((upstream, model, endpoint), 0.0) > now
            or due.get((upstream, _ALL, _ALL), 0.0) > now
        ):
            return True
        quota = self.quotas.get((upstream, model))
        return quota is not None and quota.wait(tokens, now) > 0.0
