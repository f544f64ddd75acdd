"""An engine in virtual time, by the rules of vLLM's scheduler, to measure admission at sizes that no test can run.

A step first gives each running call its next token, or a part of its prompt, then starts waiting calls in order of
arrival, while the token budget lasts. A call whose next block finds no room makes the engine preempt the call that
started last: its blocks are freed and its prompt and output are computed again. In such a step none starts. A prompt
starts when all of it has room; blocks of prefixes that a running call holds are shared.

A step takes `base_s` + `per_call_s` a running call + `per_prefill_s` a token of prompts + `per_context_s` a token
in the cache that is read.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """An engine: its cache in tokens, the bounds of its scheduler, and the parts of a step's time in seconds."""

    capacity: int
    base_s: float
    per_call_s: float
    per_prefill_s: float
    per_context_s: float
    max_calls: int = 256
    budget: int = 8192
    block: int = 16


def roofline(
    parameters: float, gpus: int, bandwidth: float, flops: float, kv_bytes: int, memory: float
) -> EngineProfile:
    """A profile from a model's parameters (16 bits each) and one GPU's bytes a second, FLOP/s and bytes of memory.

    A decode step reads all weights and the cache at 80 % of the memory's bandwidth, a prompt's token takes two
    operations a parameter at half of the peak. `kv_bytes` is what a token takes in the cache. The fixed costs a layer
    and call are those that BLIS fitted to vLLM: about 1.2 ms a step for 32 layers, and 4 us a call.
    """
    read = 0.8 * bandwidth * gpus
    weights = 2.0 * parameters
    capacity = int((0.9 * memory * gpus - weights) / kv_bytes)
    return EngineProfile(
        capacity, weights / read + 0.0012, 4e-6, 2.0 * parameters / (0.5 * flops * gpus), kv_bytes / read
    )


# Bandwidth, dense bfloat16 FLOP/s and memory from NVIDIA's data sheets of A100 80GB SXM and H100 SXM. The cache takes
# 128 KiB a token for Llama 3.1 8B (32 layers, 8 KV heads of 128, 16 bits), 320 KiB for 70B (80 layers).
A100_8B: Final = roofline(8.0e9, 1, 2.039e12, 312e12, 131_072, 80e9)
H100_8B: Final = roofline(8.0e9, 1, 3.35e12, 989e12, 131_072, 80e9)
H100X4_70B: Final = roofline(70.6e9, 4, 3.35e12, 989e12, 327_680, 80e9)


@dataclass(eq=False, slots=True)
class SimulatedCall:
    """A call: its prompt and output in tokens, and what happened to it, in virtual seconds."""

    prompt: int
    output: int
    arrived: float = 0.0
    key: str = "a"
    cap: int = 0
    prefix: str = ""
    prefix_tokens: int = 0
    sent: float = 0.0
    first_token: float | None = None
    ended: float | None = None
    longest_gap: float = 0.0
    preempted: int = 0
    produced: int = 0
    computed: int = 0
    last_token: float = field(default=0.0)

    @property
    def length(self) -> int:
        """Tokens that must be in the cache for its next token."""
        return self.prompt + self.produced

    @property
    def ttft(self) -> float:
        """Seconds from its arrival to its first token."""
        assert self.first_token is not None
        return self.first_token - self.arrived


class EngineSimulator:
    """The engine. `step` runs one step from `now` and returns the calls that ended in it."""

    def __init__(self, profile: EngineProfile) -> None:
        self.profile = profile
        self.now = 0.0
        self.running: list[SimulatedCall] = []
        self.waiting: deque[SimulatedCall] = deque()
        self.preemptions = 0
        self.tokens = 0
        self.taken = 0  # tokens of the cache that somebody else holds
        self._held: dict[SimulatedCall, int] = {}  # blocks of its own
        self._used = 0
        self._prefixes: dict[str, int] = {}  # running calls that share one

    @property
    def used(self) -> int:
        """Tokens in the cache."""
        return self._used * self.profile.block + self.taken

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self.running and not self.waiting

    def submit(self, call: SimulatedCall, now: float) -> None:
        """Give it a call."""
        self.now = max(self.now, now) if self.idle else self.now
        call.sent = now
        self.waiting.append(call)

    def step(self) -> list[SimulatedCall]:
        """Run one step; its end is the new `now`."""
        profile, budget = self.profile, self.profile.budget
        prefilled = contexts = decoding = 0
        preempted = False
        for call in list(self.running):
            if call not in self._held:
                continue  # preempted in this step
            todo = min(call.length - call.computed, budget)
            while not self._grow(call, call.computed + todo):
                victim = self.running[-1]
                self._preempt(victim)
                preempted = True
                if victim is call:
                    break
            else:
                prefilled += todo if todo > 1 else 0
                decoding += 1
                budget -= todo
                contexts += call.computed
                call.computed += todo
        while self.waiting and not preempted and budget > 0 and len(self.running) < profile.max_calls:
            call = self.waiting[0]
            cached = call.prefix_tokens if self._prefixes.get(call.prefix) else 0
            if self._blocks(call.length - cached) > self._free_blocks():
                break
            self.waiting.popleft()
            self.running.append(call)
            self._held[call] = 0
            self._share(call, 1)
            call.computed = cached
            todo = min(call.length - call.computed, budget)
            self._grow(call, call.length)
            prefilled += todo
            budget -= todo
            call.computed += todo
        self.now += (
            profile.base_s
            + profile.per_call_s * len(self.running)
            + profile.per_prefill_s * prefilled
            + profile.per_context_s * contexts
        )
        return [call for call in list(self.running) if call.computed >= call.length and self._produce(call)]

    def abort(self, call: SimulatedCall) -> None:
        """Drop a call whose caller has left."""
        if call in self._held:
            self._free(call)
            self.running.remove(call)
        elif call in self.waiting:
            self.waiting.remove(call)

    def _produce(self, call: SimulatedCall) -> bool:
        call.produced += 1
        self.tokens += 1
        if call.first_token is None:
            call.first_token = self.now
        else:
            call.longest_gap = max(call.longest_gap, self.now - call.last_token)
        call.last_token = self.now
        if call.produced < call.output:
            return False
        call.ended = self.now
        self._free(call)
        self.running.remove(call)
        return True

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.profile.block)

    def _free_blocks(self) -> int:
        return (self.profile.capacity - self.taken) // self.profile.block - self._used

    def _share(self, call: SimulatedCall, change: int) -> None:
        """Count a call that begins or ends to use its prefix, whose blocks are there once."""
        if call.prefix:
            users = self._prefixes.get(call.prefix, 0)
            self._prefixes[call.prefix] = users + change
            if not users or not users + change:
                self._used += change * self._blocks(call.prefix_tokens)

    def _grow(self, call: SimulatedCall, tokens: int) -> bool:
        """Give the call the blocks for so many tokens; False if there is no room."""
        more = max(0, self._blocks(tokens - call.prefix_tokens) - self._held[call])
        if more > self._free_blocks():
            return False
        self._held[call] += more
        self._used += more
        return True

    def _free(self, call: SimulatedCall) -> None:
        self._used -= self._held.pop(call)
        self._share(call, -1)

    def _preempt(self, call: SimulatedCall) -> None:
        self._free(call)
        self.running.remove(call)
        self.waiting.appendleft(call)
        call.computed = 0
        call.preempted += 1
        self.preemptions += 1
