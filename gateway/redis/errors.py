"""What goes wrong with Redis, in the words of the metric `sluice_redis_errors_total{kind}`."""

import re
from typing import Final

from redis import exceptions

TIMEOUT: Final = "timeout"
CONNECTION: Final = "connection"
NOSCRIPT: Final = "noscript"
READONLY: Final = "readonly"
LOADING: Final = "loading"
OOM: Final = "oom"
OTHER: Final = "other"
BACKLOG: Final = "backlog"
KINDS: Final = (TIMEOUT, CONNECTION, NOSCRIPT, READONLY, LOADING, OOM, OTHER, BACKLOG)

# Redis 6 wraps a script's errors in `ERR Error running script ...`, so the code is looked for anywhere.
_CODE: Final = re.compile(
    r"\b(READONLY|LOADING|OOM|BUSY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|NOAUTH|NOPERM|MOVED|ASK|CROSSSLOT|WRONGTYPE)\b"
)
_KINDS: Final = {"READONLY": READONLY, "LOADING": LOADING, "OOM": OOM}
# About this Redis as a whole. The rest is about one call and its keys.
_HALTING: Final = frozenset(_KINDS) | {
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOAUTH",
    "NOPERM",
}


def code_of(error: Exception) -> str:
    """Redis's own code for it (`WRONGTYPE`), `ERR` where it has none."""
    status = getattr(error, "status_code", None)
    if isinstance(status, str) and status != "ERR":
        return status
    found = _CODE.search(str(error))
    return found[1] if found else "ERR"


def kind_of(error: Exception) -> str:
    """The metric's label of it."""
    if kind := _KINDS.get(code_of(error)):
        return kind
    if isinstance(error, exceptions.ResponseError | exceptions.AuthenticationError):
        return OTHER
    return CONNECTION


def halts(error: Exception) -> bool:
    """Whether every call would fail like this one."""
    return code_of(error) in _HALTING
