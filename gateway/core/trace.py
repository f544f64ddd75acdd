"""The record of a traced call, from which spans are made when the call ends."""


class AttemptRecord:
    """One attempt at an upstream. Times are monotonic seconds; `ended` 0.0 means together with the call.

    `waited_s` is the queueing time just before the attempt; `error` is the code of its failure.
    """

    __slots__ = ("began", "ended", "error", "model", "span_id", "upstream", "waited_s")

    def __init__(self, span_id: int, upstream: str, model: str, waited_s: float, began: float) -> None:
        self.span_id = span_id
        self.upstream = upstream
        self.model = model
        self.waited_s = waited_s
        self.began = began
        self.ended = 0.0
        self.error = ""


class Trace:
    """The ids of a call's trace, span and parent span (0: none), and its attempts."""

    __slots__ = ("attempts", "parent_id", "span_id", "trace_id", "waited_s")

    def __init__(self, trace_id: int, parent_id: int, span_id: int) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = span_id
        self.attempts: list[AttemptRecord] = []
        self.waited_s = 0.0  # queueing time already recorded in attempts

    def traceparent(self) -> str:
        """The W3C `traceparent` header for the upstream; its span becomes a child of the current attempt."""
        return f"00-{self.trace_id:032x}-{self.attempts[-1].span_id:016x}-01"
