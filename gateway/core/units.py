"""Words for quantities that are easy to mix up or to leak: secrets, durations, sizes and money."""

import hmac
import re
from decimal import Decimal
from typing import Final

NANO: Final = 1_000_000_000
MASK: Final = "***"

_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_BYTES: Final = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
# Bounded digits keep absurd numbers (and the cost of parsing them) out.
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s?(ms|s|m|h)?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,15})\s?(B|KiB|MiB|GiB)?", re.ASCII)
_DECIMAL: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?", re.ASCII)

_DURATION_ALLOWED: Final = "a duration is a number with ms, s, m or h (250ms, 2s, 5m, 1h) or plain seconds"
_SIZE_ALLOWED: Final = "a size is a whole number of bytes or of KiB, MiB or GiB (32MiB, 512KiB)"
_MONEY_ALLOWED: Final = "an amount is a plain decimal number of USD, at most 9 decimals (0.28)"


class Secret:
    """Text that never prints: `str`, `repr` and `format` give `***`; `reveal()` gives the text.

    It is neither iterable nor encodable as JSON, and compares in constant time with another Secret only.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
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
    """Seconds from `250ms`, `2s`, `5m`, `1h` or plain seconds; ValueError tells what is allowed."""
    match = _DURATION.fullmatch(_plain(value))
    if match is None:
        raise ValueError(_DURATION_ALLOWED)
    return float(Decimal(match[1]) * _SECONDS[match[2] or "s"])


def parse_size(value: str | int) -> int:
    """Bytes from `32MiB`, `512KiB`, `1GiB` or a plain number of bytes; ValueError tells what is allowed."""
    match = _SIZE.fullmatch(_plain(value))
    if match is None:
        raise ValueError(_SIZE_ALLOWED)
    return int(match[1]) * _BYTES[match[2] or ""]


def parse_usd(value: str | int | float) -> int:
    """Nano-dollars from a decimal number of USD, exactly (`0.28` is 280_000_000); ValueError otherwise."""
    text = _plain(value)
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(_MONEY_ALLOWED)
    nanos = Decimal(text) * NANO
    if nanos != int(nanos):
        raise ValueError(_MONEY_ALLOWED)
    return int(nanos)


def usd(nanos: int) -> str:
    """Nano-dollars (0 or more) as a plain decimal number of USD, exactly: `0.000012`."""
    whole, part = divmod(nanos, NANO)
    return f"{whole}.{part:09d}".rstrip("0").removesuffix(".")


def _plain(value: str | int | float) -> str:
    """The text of a value; a float's shortest one, without an exponent, and nothing for a bool."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return str(value).strip()
