"""What the open calls hold of an engine's KV cache, and whether one more fits beside them.

A call holds its prompt and what it has generated, and it grows by one token a step until its answer ends. The
calls do not end together, so the sum of what each may need at its end is too careful: the ledger asks for the
highest occupancy on the way (Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025).
"""

from typing import Final

from gateway.usage.estimator import ExpectedOutput

FIRST_MARGIN: Final = 0.95
"""The part of the cache that is given out before anything has been learned."""
LOWEST_MARGIN: Final = 0.5
HIGHEST_MARGIN: Final = 1.0
CALM_S: Final = 5.0
"""This long after the last preemption the margin may grow again."""
_FULL: Final = 0.97
_ROOMY: Final = 0.9
_LOWEST_RATIO: Final = 0.3
_HIGHEST_RATIO: Final = 1.5
_LEARNED: Final = 4096
"""Outputs are learned for so many pairs of a key and a cap at most."""
_GROWTH: Final = 1.25
_UNCAPPED_GUESS: Final = 256
_ASK_AGAIN_S: Final = 0.05


class KvDemand:
    """What one call needs: `prompt` and `expected` output tokens; `cap` bounds the output, None: nothing does.

    `since` is when it was admitted, in monotonic seconds; `output` what its answer had, None until it is whole.
    """

    __slots__ = ("cap", "expected", "learner", "output", "prompt", "since")

    def __init__(self, prompt: int, expected: int, cap: int | None, learner: ExpectedOutput) -> None:
        self.prompt = prompt
        self.expected = expected
        self.cap = cap
        self.learner = learner
        self.output: int | None = None
        self.since = 0.0


class KvLedger:
    """The ledger of one engine as one process sees it. Sizes are in tokens, times in monotonic seconds.

    `capacity` is this process's share of the cache, 0 while the engine has not told it: then every call fits.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self.block = 16
        self.margin = FIRST_MARGIN
        self.others = 0
        """Tokens in the cache that belong to other clients of the engine."""
        self._ratio = 1.0  # tokens in the engine's cache for each of the ledger's; less where calls share prefixes
        self._most = 0  # the sum of what each open call may need at its end
        self._open: dict[KvDemand, None] = {}
        self._rate = 0.0  # tokens a second of one answer
        self._troubled_at = -CALM_S
        self._refused: KvDemand | None = None  # the last call that did not fit, asked again only after a change
        self._refused_until = 0.0
        self._learners: dict[tuple[str, str, int], ExpectedOutput] = {}

    def __len__(self) -> int:
        return len(self._open)

    def demand(self, key: str, model: str, prompt: int, output: int, *, capped: bool, choices: int = 1) -> KvDemand:
        """What a call is expected to need. `output` is its cap if `capped`, else an estimate.

        Each of several choices holds a copy of the output; the prompt is shared.
        """
        cap = max(1, output) if capped else None
        # A cap of 1000 says as much about an answer as one of 1024.
        bucket = (key, model, 0 if cap is None else cap.bit_length())
        learner = self._learners.get(bucket)
        if learner is None:
            if len(self._learners) >= _LEARNED:
                self._learners.pop(next(iter(self._learners)))
            learner = self._learners[bucket] = ExpectedOutput()
        if learner.answers:
            expected = learner.tokens * (choices if cap is None else 1)
        else:
            expected = output if capped else max(output, _UNCAPPED_GUESS)
        return KvDemand(prompt, expected if cap is None else min(expected, cap), cap, learner)

    def fits(self, demand: KvDemand, now: float) -> bool:
        """Whether the call fits beside the open ones. A lone call always does: the engine itself refuses it if not."""
        if not self.capacity or not self._open:
            return True
        room = (self.margin * self.capacity - self.others) / self._ratio
        if self._most + self._end(demand) <= room:
            return True
        if demand is self._refused and now < self._refused_until:
            return False  # nothing has ended since; what the open calls produce makes room only slowly
        if self._peak(demand, now) <= room:
            return True
        self._refused, self._refused_until = demand, now + _ASK_AGAIN_S
        return False

    def hold(self, demand: KvDemand, now: float) -> None:
        """Enter an admitted call."""
        demand.since = now
        self._open[demand] = None
        self._most += self._end(demand)

    def release(self, demand: KvDemand, now: float) -> None:
        """Strike a call out; a second time does nothing. What it has as `output` is learned from."""
        if demand not in self._open:
            return
        self._refused = None
        del self._open[demand]
        self._most -= self._end(demand)
        if output := demand.output:
            demand.learner.learn(output)
            if (seconds := now - demand.since) > 0.0:
                rate = output / seconds
                self._rate = rate if not self._rate else self._rate + 0.1 * (rate - self._rate)

    def tokens(self, now: float) -> int:
        """Tokens that the open calls hold now: prompts and what has been generated."""
        return sum(demand.prompt + self._produced(demand, now) + self.block for demand in self._open)

    def learn_capacity(self, capacity: int, block: int) -> None:
        """Take the size of the engine's cache; another size is another engine, whose margin is learned anew."""
        if (capacity, block) == (self.capacity, self.block):
            return
        self._refused = None
        self.capacity, self.block = capacity, max(1, block)
        self.margin, self._ratio, self.others = FIRST_MARGIN, 1.0, 0
        self._most = sum(self._end(demand) for demand in self._open)

    def learn_usage(self, used: int, *, preempted: bool, shared: bool, waiting: bool, now: float) -> None:
        """Compare with the engine: `used` tokens of its cache (of this process's share).

        `preempted`: since the last reading; `shared`: it works for others too; `waiting`: calls wait for room here.
        """
        if not self.capacity:
            return
        self._refused = None
        ours = self.tokens(now)
        if shared:
            self.others = max(0, used - ours)
        else:
            self.others = 0
            if 10 * ours > self.capacity:
                seen = min(max(used / ours, _LOWEST_RATIO), _HIGHEST_RATIO)
                self._ratio += (0.5 if seen > self._ratio else 0.1) * (seen - self._ratio)
        full = used / self.capacity
        if preempted:
            self._troubled_at = now
            self.margin = max(LOWEST_MARGIN, 0.93 * self.margin)
        elif full > _FULL:
            self.margin = max(LOWEST_MARGIN, 0.99 * self.margin)
        elif waiting and full < _ROOMY and now - self._troubled_at >= CALM_S:
            self.margin = min(HIGHEST_MARGIN, self.margin + 0.01)

    def _end(self, demand: KvDemand) -> int:
        return demand.prompt + demand.expected + self.block

    def _produced(self, demand: KvDemand, now: float) -> int:
        """Tokens generated so far by its age. A call that outlives what was expected is expected to go on."""
        produced = int((now - demand.since) * self._rate)
        if produced >= demand.expected:
            if demand.cap is not None and produced >= demand.cap:
                produced = demand.cap
            longer = int(_GROWTH * produced) + 1
            longer = longer if demand.cap is None else min(longer, demand.cap)
            if longer > demand.expected:
                self._most += longer - demand.expected
                demand.expected = longer
        return produced

    def _peak(self, newcomer: KvDemand, now: float) -> int:
        """The highest occupancy until all these calls have ended, with no others after them."""
        left = [(newcomer.expected, newcomer.prompt + self.block)]
        for demand in self._open:
            produced = self._produced(demand, now)
            left.append((demand.expected - produced, demand.prompt + produced + self.block))
        left.sort(reverse=True)
        peak = present = 0
        for number, (remaining, holds) in enumerate(left, 1):
            present += holds
            peak = max(peak, present + number * remaining)
        return peak
