"""The progress of a batch on a terminal: lines, tokens a second, dollars and the time that is left."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.batch.client import BatchView
from gateway.core.clock import Clock


class BatchProgress:
    """A bar, shown on a terminal only; used in a `with`."""

    def __init__(self, console: Console, clock: Clock) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None, pace="")
        self._clock = clock
        self._first: tuple[float, int, int] | None = None

    def __enter__(self) -> "BatchProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, batch: BatchView) -> None:
        """Show the batch as it is now."""
        total = batch.request_counts.get("total") or None
        status = f"{batch.status}: {batch.paused}" if batch.paused else batch.status
        self._bar.update(self._task, description=status, completed=batch.done, total=total, pace=self._pace(batch))

    def _pace(self, batch: BatchView) -> str:
        now, tokens = self._clock(), (batch.usage or {}).get("total_tokens", 0)
        if self._first is None:
            self._first = (now, tokens, batch.done)
        return pace(batch, now - self._first[0], tokens - self._first[1], batch.done - self._first[2])


def pace(batch: BatchView, seconds: float, tokens: int, lines: int) -> str:
    """What the last `seconds` with so many tokens and lines say about the batch."""
    parts = []
    if seconds > 0 and tokens:
        parts.append(f"{tokens / seconds:,.0f} tokens/s")
    if batch.cost_usd is not None:
        parts.append(f"{batch.cost_usd} USD")
    left = batch.request_counts.get("total", 0) - batch.done
    if seconds > 0 and lines and left:
        parts.append(f"{duration(left * seconds / lines)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A rounded time, such as `2 h 05 min` or `40 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
