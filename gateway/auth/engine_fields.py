"""Fields of a body that steer the engine itself: only for keys that the config allows it."""

from collections.abc import Iterable

from gateway.core.caller import Caller
from gateway.core.errors import INVALID_VALUE, Rejection


def refuse(fields: Iterable[str], caller: Caller) -> Rejection | None:
    """The refusal for the first of these fields that the caller's key may not send, or None."""
    allowed = caller.engine_fields
    if "*" in allowed:
        return None
    for field in fields:
        if field not in allowed:
            return Rejection(
                INVALID_VALUE,
                f"`{field}` steers the engine itself and is not taken from this caller; "
                f"`engine_fields: [{field}]` of a key in the gateway's config allows it.",
                field,
            )
    return None
