"""The six `x-ratelimit-*` headers, as OpenAI sends them."""

from math import ceil

from gateway.core.caller import KeyLimits, LimitStatus


def render(limits: KeyLimits, status: LimitStatus) -> str:
    """Header lines for the rate limits of a key."""
    rpm, tpm, text = limits.rpm, limits.tpm, ""
    if rpm is not None:
        text = _render_limit("requests", rpm, status.requests_left, status.requests_reset)
    if tpm is not None:
        text += _render_limit("tokens", tpm, status.tokens_left, status.tokens_reset)
    return text


def _render_limit(unit: str, limit: float, remaining: int, reset: float) -> str:
    return (
        f"x-ratelimit-limit-{unit}: {int(limit)}\r\n"
        f"x-ratelimit-remaining-{unit}: {remaining}\r\n"
        f"x-ratelimit-reset-{unit}: {duration(reset)}\r\n"
    )


def duration(seconds: float) -> str:
    """Seconds as Go prints durations, rounded up to milliseconds: `0s`, `12ms`, `7.66s`, `1h0m30s`."""
    ms = ceil(seconds * 1000 - 1e-6)
    if ms < 1000:
        return f"{ms}ms" if ms > 0 else "0s"
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{ms / 1000:g}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
