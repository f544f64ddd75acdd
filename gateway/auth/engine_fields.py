"""Body fields that control the engine itself: accepted only from keys whose config allows them."""

from collections.abc import Iterable

from gateway.core.caller import Caller
from gateway.core.errors import INVALID_VALUE, Rejection


def reject(fields: Iterable[str], caller: Caller) -> Rejection | None:
    """The rejection for the first field that the caller's key may not send, or None."""
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
