"""What a choice's `finish_reason` says: nothing yet, that the choice has ended, or that it has failed.

Some engines send a placeholder such as `""` or `"null"` in every chunk instead of null.
"""

from typing import Final

_PLACEHOLDERS: Final = frozenset(
    [
        *("", "null", "none", "nil", "undefined", "n/a", "false", "0", "unspecified"),
        *("finish_reason_unspecified", "not_finished", "unfinished", "not_stopped", "in_progress"),
    ]
)
_FAILURES: Final = {
    "insufficient_system_resource": 503,  # DeepSeek
    "overloaded": 503,
    "unavailable": 503,
    "timeout": 504,
    "timed_out": 504,
    **dict.fromkeys(("abort", "aborted", "cancelled", "canceled", "failed", "failure"), 502),
}


def is_final(reason: object) -> bool:
    """Whether this reason ends its choice; a null, an empty value or a placeholder does not."""
    if isinstance(reason, str):
        return reason.strip().lower() not in _PLACEHOLDERS
    return bool(reason)


def failure_status(reason: object) -> int | None:
    """The HTTP status for a choice that ended in a failure of its upstream; None for any other end.

    Such as `error` (OpenRouter, Mistral), `network_error` (Zhipu) and `abort` (vLLM, SGLang).
    """
    if not isinstance(reason, str):
        return None
    reason = reason.strip().lower()
    return _FAILURES.get(reason) or (502 if reason.endswith("error") else None)
