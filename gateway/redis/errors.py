"""Kinds of Redis errors: the label `kind` of `sluice_redis_errors_total`."""

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
KINDS: Final = (TIMEOUT, CONNECTION, NOSCRIPT, READONLY, LOADING, OOM, OTHER)

# Redis 6 wraps a script's errors in `ERR Error running script ...`, so the code may be anywhere in the text.
_CODE: Final = re.compile(
    r"\b(READONLY|LOADING|OOM|BUSY|MISCONF|NOREPLICAS|MASTERDOWN|CLUSTERDOWN|NOAUTH|NOPERM|MOVED|ASK|TRYAGAIN|CROSSSLOT|WRONGTYPE)\b"
)
_KINDS: Final = {"READONLY": READONLY, "LOADING": LOADING, "OOM": OOM}
# About this Redis as a whole; other errors are about one command and its keys.
_HALTING: Final = frozenset(_KINDS) | {
    "BUSY",
    "MISCONF",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOAUTH",
    "NOPERM",
    "MOVED",  # a cluster's: the node of all names is another one, or is about to be
    "ASK",
    "TRYAGAIN",
}


def code_of(error: Exception) -> str:
    """The error code that Redis gave, such as `WRONGTYPE`; `ERR` if it gave none."""
    status = getattr(error, "status_code", None)
    if isinstance(status, str) and status != "ERR":
        return status
    match = _CODE.search(str(error))
    return match[1] if match else "ERR"


def kind_of(error: Exception) -> str:
    """The label `kind` for this error."""
    if kind := _KINDS.get(code_of(error)):
        return kind
    if isinstance(error, exceptions.ResponseError | exceptions.AuthenticationError):
        return OTHER
    return CONNECTION


def halts(error: Exception) -> bool:
    """Whether every other command would fail the same."""
    return code_of(error) in _HALTING
