"""The choice between a model's cheap and its strong candidate, call by call."""

import hashlib
from typing import Final, NamedTuple

from gateway.routing.complexity.features import PromptReading, read
from gateway.routing.complexity.prompt import peek
from gateway.routing.complexity.quota import REMEMBERED, Purse, ScoreWindow
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.sessions import Sessions, ShareCap

CHEAP: Final = "cheap"
STRONG: Final = "strong"


class TierChoice(NamedTuple):
    """A tier, the score behind it, why in a word (score, session, cap, unread), and what was read."""

    tier: str
    score: float
    why: str
    reading: PromptReading | None = None


class Chooser:
    """Decides for one route. Strong goes to the hardest `share` of its calls, or to what `purse` pays for.

    A conversation never moves down a tier, and no key has more than `cap` of its calls raised by their score.
    Nothing that a prompt says names its tier; only the score of the whole of it counts.
    """

    __slots__ = ("_cap", "_held", "_purse", "_recent", "_scorer", "_sessions", "_share")

    def __init__(
        self, scorer: PromptScorer, share: float, cap: float = 1.0, purse: Purse | None = None
    ) -> None:
        self._scorer = scorer
        self._share = share
        self._purse = purse
        self._cap = ShareCap(cap)
        self._recent = ScoreWindow(scorer.weights.percentiles)
        self._sessions = Sessions()
        self._held = 0.0  # share of the last calls that their conversation decided

    def choose(self, body: bytes, key: str, extra: int, now: float) -> TierChoice:
        """Decide on a body. A body without a prompt is cheap.

        `key` is the caller's name, `extra` the nano-dollars that the strong answer is expected to cost more,
        `now` monotonic seconds.
        """
        seen = peek(body)
        if seen is None:
            return TierChoice(CHEAP, 0.0, "unread")
        reading = read(seen.prompt)
        score = self._scorer.judge(reading)
        session = _session(key, seen.opening)
        raised = self._sessions.is_raised(session)
        share = self._share if self._purse is None else min(self._share, self._purse.share(extra, now))
        if raised:
            tier, why = STRONG, "session"
        else:
            tier, why = self._fresh(score, share, key)
        self._held += (raised - self._held) / REMEMBERED
        self._cap.note(key, tier is STRONG)
        if tier is STRONG:
            self._sessions.raise_(session)
            if self._purse is not None:
                self._purse.pay(extra)
        return TierChoice(tier, score, why, reading)

    def _fresh(self, score: float, share: float, key: str) -> tuple[str, str]:
        """Tier and reason of a call that no earlier one decides; the others count in the share too."""
        room = (share - self._held) / (1.0 - self._held) if share > self._held else 0.0
        hard = self._recent.is_hard(score, room)
        self._recent.add(score)
        if not hard:
            return CHEAP, "score"
        return (STRONG, "score") if self._cap.allows(key) else (CHEAP, "cap")

    def tell(self, choice: TierChoice) -> str:
        """For `x-sluice-routing`: `complexity; tier=strong; by=score; for="length, numbers"`."""
        text = f"complexity; tier={choice.tier}; by={choice.why}"
        if choice.reading is None:
            return text
        names = self._scorer.names(choice.reading, choice.tier is STRONG)
        return f'{text}; for="{", ".join(names)}"'


def _session(key: str, opening: bytes) -> bytes:
    """A conversation is one caller's: the same words of another's are another conversation."""
    return hashlib.blake2b(opening + key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
