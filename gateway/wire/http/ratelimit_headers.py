"""The six `x-ratelimit-*` headers, as OpenAI sends them."""

from math import ceil

from gateway.core.caller import KeyLimits, LimitStatus


def render(terms: KeyLimits, standing: LimitStatus) -> str:
    """Header lines for the limits that the key has."""
    rpm, tpm, text = terms.rpm, terms.tpm, ""
    if rpm is not None:
        text = _three("requests", rpm, standing.requests_left, standing.requests_reset)
    if tpm is not None:
        text += _three("tokens", tpm, standing.tokens_left, standing.tokens_reset)
    return text


def _three(what: str, limit: float, left: int, reset: float) -> str:
    return (
        f"x-ratelimit-limit-{what}: {int(limit)}\r\n"
        f"x-ratelimit-remaining-{what}: {left}\r\n"
        f"x-ratelimit-reset-{what}: {duration(reset)}\r\n"
    )


def duration(seconds: float) -> str:
    """Rounded up to milliseconds, and written like `0s`, `12ms`, `7.66s`, `6m0s`, `1h0m30s`."""
    ms = ceil(seconds * 1000 - 1e-6)
    if ms < 1000:
        return f"{ms}ms" if ms > 0 else "0s"
    minutes, ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{ms / 1000:g}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
