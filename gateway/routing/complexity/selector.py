"""Chooses between a model's cheap and strong tier, call by call."""

import hashlib
from typing import Final, NamedTuple

from gateway.core.request_fields import RequestFields
from gateway.routing.complexity.features import PromptReading, read
from gateway.routing.complexity.prompt import peek
from gateway.routing.complexity.quota import WINDOW, DollarBucket, ScoreWindow
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.sessions import Sessions, ShareCap

CHEAP: Final = "cheap"
STRONG: Final = "strong"


class TierChoice(NamedTuple):
    """A tier, the score behind it, the reason (score, session, cap or unread), and the reading."""

    tier: str
    score: float
    reason: str
    reading: PromptReading | None = None


class TierChooser:
    """Chooses for one route. The hardest `share` of its calls is strong, as far as `bucket` pays for it.

    A conversation never moves down a tier, and at most `cap` of a key's calls are raised by their score. A
    prompt cannot name its tier; only its score counts.
    """

    __slots__ = ("_bucket", "_cap", "_recent", "_scorer", "_session_share", "_sessions", "_share")

    def __init__(
        self, scorer: PromptScorer, share: float, cap: float = 1.0, bucket: DollarBucket | None = None
    ) -> None:
        self._scorer = scorer
        self._share = share
        self._bucket = bucket
        self._cap = ShareCap(cap)
        self._recent = ScoreWindow(scorer.weights.percentiles)
        self._sessions = Sessions()
        self._session_share = 0.0  # share of the last calls that were decided by their conversation

    def choose(self, fields: RequestFields | None, key: str, extra: int, now: float) -> TierChoice:
        """Choose the tier of a request; one without a prompt is cheap.

        `key` is the caller's name, `extra` the expected extra cost of the strong answer in nano-dollars,
        `now` is in monotonic seconds.
        """
        peeked = peek(fields)
        if peeked is None:
            return TierChoice(CHEAP, 0.0, "unread")
        reading = read(peeked.prompt)
        score = self._scorer.score_reading(reading)
        session = _session(key, peeked.opening)
        raised = self._sessions.is_raised(session)
        share = self._share if self._bucket is None else min(self._share, self._bucket.share(extra, now))
        if raised:
            tier, reason = STRONG, "session"
        else:
            tier, reason = self._by_score(score, share, key)
        self._session_share += (raised - self._session_share) / WINDOW
        self._cap.note(key, tier is STRONG)
        if tier is STRONG:
            self._sessions.raise_(session)
            if self._bucket is not None:
                self._bucket.pay(extra)
        return TierChoice(tier, score, reason, reading)

    def _by_score(self, score: float, share: float, key: str) -> tuple[str, str]:
        """Return tier and reason by score; calls decided by their conversation count in the share too."""
        room = (share - self._session_share) / (1.0 - self._session_share) if share > self._session_share else 0.0
        hard = self._recent.is_hard(score, room)
        self._recent.add(score)
        if not hard:
            return CHEAP, "score"
        return (STRONG, "score") if self._cap.allows(key) else (CHEAP, "cap")

    def describe(self, choice: TierChoice) -> str:
        """Return the routing header: `complexity; tier=strong; by=score; for="length, numbers"`."""
        text = f"complexity; tier={choice.tier}; by={choice.reason}"
        if choice.reading is None:
            return text
        names = self._scorer.names(choice.reading, choice.tier is STRONG)
        return f'{text}; for="{", ".join(names)}"'


def _session(key: str, opening: bytes) -> bytes:
    """Return the id of a conversation; equal openings of different keys are different conversations."""
    return hashlib.blake2b(opening + key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
