"""What a traced call collects on its way; spans are made of it when the call is over."""


class AttemptRecord:
    """One call to an upstream. Times are monotonic seconds; `ended` 0.0: with the call itself.

    `waited_s` is how long the call waited for a slot just before it; `error` the code of its failure.
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
    """The ids of a call's span, of its parent (0: none), and of their trace; and its attempts."""

    __slots__ = ("attempts", "parent_id", "span_id", "trace_id", "waited_s")

    def __init__(self, trace_id: int, parent_id: int, span_id: int) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = span_id
        self.attempts: list[AttemptRecord] = []
        self.waited_s = 0.0  # seconds of waiting that attempts tell of

    def traceparent(self) -> str:
        """The header for the upstream: its own span begins below the current attempt's (W3C)."""
        return f"00-{self.trace_id:032x}-{self.attempts[-1].span_id:016x}-01"
