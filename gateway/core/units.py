"""Units that are easy to confuse or to leak: secrets, durations, sizes and money."""

import hmac
import re
from decimal import Decimal
from typing import Final

NANO: Final = 1_000_000_000
MASK: Final = "***"

_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_BYTES: Final = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
# Bounded digits reject absurd numbers and the cost of parsing them.
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s?(ms|s|m|h|d)?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,15})\s?(B|KiB|MiB|GiB)?", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?", re.ASCII)

_DURATION_ALLOWED: Final = "a duration is a number with ms, s, m, h or d (250ms, 2s, 5m, 1h, 30d) or plain seconds"
_SIZE_ALLOWED: Final = "a size is a whole number of bytes or of KiB, MiB or GiB (32MiB, 512KiB)"
_MONEY_ALLOWED: Final = "an amount is a plain decimal number of USD, at most 9 decimals (0.28)"


class Secret:
    """Text that never prints: `str`, `repr` and `format` give `***`; `reveal()` returns the text.

    It is neither iterable nor JSON-encodable, and compares only with another Secret, in constant time.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __str__(self) -> str:
        return MASK

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes(self._text), _bytes(other._text))

    def __hash__(self) -> int:
        return hash((Secret, self._text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def parse_duration(value: str | int | float) -> float:
    """Seconds from `250ms`, `2s`, `5m`, `1h`, `30d` or plain seconds. ValueError names the allowed forms."""
    match = _DURATION.fullmatch(_as_text(value))
    if match is None:
        raise ValueError(_DURATION_ALLOWED)
    return float(Decimal(match[1]) * _SECONDS[match[2] or "s"])


def parse_size(value: str | int) -> int:
    """Bytes from `32MiB`, `512KiB`, `1GiB` or a plain number. ValueError names the allowed forms."""
    match = _SIZE.fullmatch(_as_text(value))
    if match is None:
        raise ValueError(_SIZE_ALLOWED)
    return int(match[1]) * _BYTES[match[2] or ""]


def parse_usd(value: str | int | float) -> int:
    """Exact nano-dollars from a decimal number of USD (`0.28` is 280_000_000). ValueError otherwise."""
    text = _as_text(value)
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(_MONEY_ALLOWED)
    nanos = Decimal(text) * NANO
    if nanos != int(nanos):
        raise ValueError(_MONEY_ALLOWED)
    return int(nanos)


def usd(nanos: int) -> str:
    """Nano-dollars (0 or more) as an exact decimal number of USD: `0.000012`."""
    dollars, fraction = divmod(nanos, NANO)
    return f"{dollars}.{fraction:09d}".rstrip("0").removesuffix(".")


def _as_text(value: str | int | float) -> str:
    """The text of a value: the shortest one of a float, without an exponent; empty for a bool."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return str(value).strip()
