"""PromQL shared by both dashboards. Windows are Grafana's `$__rate_interval`, filters its variables."""

from typing import Final

WINDOW: Final = "$__rate_interval"
MODEL: Final = 'model=~"$model"'
UPSTREAM: Final = 'upstream=~"$upstream"'
KEY: Final = 'key=~"$key"'
BOTH: Final = f"{MODEL},{UPSTREAM}"


def rate(series: str, where: str = "", by: str = "", window: str = WINDOW) -> str:
    """A counter's growth per second, summed over all labels except `by`."""
    return f"sum{_by(by)} (rate({_of(series, where)}[{window}]))"


def increase(series: str, where: str = "", by: str = "", window: str = "$__range") -> str:
    """A counter's growth over the time range, summed over all labels except `by`."""
    return f"sum{_by(by)} (increase({_of(series, where)}[{window}]))"


def share(series: str, part: str, where: str = "", by: str = "", window: str = WINDOW) -> str:
    """The share of a counter's growth that `part` selects: 0 while there is no such series yet."""
    chosen = f"rate({_of(series, ','.join(filter(None, (part, where))))}[{window}])"
    whole = f"rate({_of(series, where)}[{window}])"
    return f"sum{_by(by)} ({chosen} or 0 * {whole}) / sum{_by(by)} ({whole})"


def quantile(q: float, histogram: str, where: str = "", by: str = "", window: str = WINDOW) -> str:
    """The `q` quantile of a histogram."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', where, labels, window)})"


def mean(histogram: str, where: str = "", by: str = "", window: str = WINDOW) -> str:
    """The mean of a histogram."""
    return f"{rate(f'{histogram}_sum', where, by, window)} / {rate(f'{histogram}_count', where, by, window)}"


def _of(series: str, where: str) -> str:
    return f"{series}{{{where}}}" if where else series


def _by(by: str) -> str:
    return f" by ({by})" if by else ""
