"""The scalar types of the schema. Each carries the parser of its text and, where it differs, how it is shown.

YAML hands every scalar over as text (see `yaml_text.py`), so `8080`, `"8080"` and `${PORT}` read alike and
`off` is never a boolean. A parser raises ValueError whose text tells what is allowed, with an example.
"""

import ipaddress
import re
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from gateway.core.units import MASK, NANO, Secret, parse_duration, parse_size, parse_usd


class Section(Struct, frozen=True, kw_only=True):
    """Base of every section."""


class Scalar(NamedTuple):
    """Marks a scalar field: `parse` reads its text, `show` prints it, `private` keeps it out of messages."""

    parse: Callable[[str], Any]
    show: Callable[[Any], Any] = lambda value: value
    private: bool = False


_FAR: Final = 10**12
_INTEGER: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_FRACTION: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,9})?", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_HOST_NAME: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)
_HEX_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_GRAPHIC: Final = re.compile(r"[!-~]+", re.ASCII)


def _whole(low: int, high: int, example: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
            span = f"of at least {low}" if high == _FAR else f"from {low} to {high}"
            raise ValueError(f"must be a whole number {span}, such as {example}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    return parse_duration(text)


def _positive_seconds(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError("must be more than 0, such as 250ms, 2s or 5m")
    return seconds


def _heartbeat(text: str) -> float | None:
    if text in ("off", "false"):
        return None
    try:
        return _positive_seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}; or off") from None


def _show_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "off"
    number = Decimal(repr(seconds))
    if 0 < number < 1:
        return f"{(number * 1000).normalize():f}ms"
    return f"{number.normalize():f}s"


def _size(text: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise ValueError("must be at least one byte, such as 32MiB")
    return size


def _show_size(size: int) -> str | int:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return size


def _show_amount(nanos: int) -> int | float:
    return nanos // NANO if nanos % NANO == 0 else float(Decimal(nanos) / NANO)


def _fraction(text: str) -> float:
    if _FRACTION.fullmatch(text) is None or float(text) > 10:
        raise ValueError("must be a number from 0 to 10, such as 0.1")
    return float(text)


def _share(text: str) -> float:
    if _FRACTION.fullmatch(text) is None or float(text) > 1:
        raise ValueError("must be a number from 0 to 1, such as 0.3")
    return float(text)


def _log_probability(text: str) -> float:
    if _FRACTION.fullmatch(text.removeprefix("-")) is None or not -10 <= float(text) <= 0:
        raise ValueError("must be a number from -10 to 0, such as -0.5")
    return float(text)


def _flag(text: str) -> bool:
    if text in ("true", "on", "yes"):
        return True
    if text in ("false", "off", "no"):
        return False
    raise ValueError("must be true or false")


def _name(text: str) -> str:
    if not 0 < len(text) <= 256 or not text.isprintable() or text != text.strip():
        raise ValueError("must be 1 to 256 printable characters, without spaces around them")
    return text


def upstream_name(text: str) -> str:
    """An upstream's name; it travels in a response header, hence ASCII. ValueError tells what is allowed."""
    if len(_name(text)) > 64 or not text.isascii():
        raise ValueError("must be 1 to 64 printable ASCII characters, for it stands in a response header")
    return text


model_name = _name


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("must be the path of a file, such as ./sluice-usage.db")
    return text


def _host(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Digits and dots alone are a mistyped address, not a name.
        if _HOST_NAME.fullmatch(text) is None or not text.strip("0123456789."):
            raise ValueError(
                "must be an address or a host name without port or brackets, such as 127.0.0.1, 0.0.0.0 or ::"
            ) from None
    return text


def _split(text: str, schemes: tuple[str, ...], example: str) -> SplitResult:
    allowed = f"must be an address that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if _GRAPHIC.fullmatch(text) is None:
        raise ValueError(f"{allowed}, in ASCII and without spaces, such as {example}")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise ValueError(f"{allowed}, with a port from 1 to 65535 if any, such as {example}") from None
    if url.scheme not in schemes or port == 0:
        raise ValueError(f"{allowed}, such as {example}")
    return url


def _base_url(text: str) -> str:
    url = _split(text, ("http", "https"), "http://127.0.0.1:8000/v1")
    if "@" in url.netloc:
        raise ValueError("must hold no user or password; put the credential into api_key or headers")
    if not url.hostname:
        raise ValueError("must name a host, such as http://127.0.0.1:8000/v1")
    if "?" in text or "#" in text:
        raise ValueError("must end with the path: no query (?) and no fragment (#)")
    if url.path.rstrip("/").endswith(("/chat/completions", "/completions", "/embeddings")):
        raise ValueError("must end before the endpoint's own path, such as http://127.0.0.1:8000/v1")
    return text.rstrip("/")


def _redis_url(text: str) -> Secret:
    url = _split(text, ("redis", "rediss", "unix"), "redis://127.0.0.1:6379/0")
    if not (url.path if url.scheme == "unix" else url.hostname):
        raise ValueError("must name where Redis listens, such as redis://127.0.0.1:6379/0")
    return Secret(text)


def _show_redis_url(secret: Secret) -> str:
    url = urlsplit(secret.reveal())
    user, at, place = url.netloc.rpartition("@")
    login = f"{user.partition(':')[0]}:{MASK}@" if at else ""
    # redis-py takes a password from the query too.
    return f"{url.scheme}://{login}{place}{url.path}{'?' + MASK if url.query else ''}"


def _origin(text: str) -> str:
    if text != "*":
        url = _split(text, ("http", "https"), "https://app.example.com")
        if not url.hostname or "@" in url.netloc or text != f"{url.scheme}://{url.netloc}":
            raise ValueError('must be an origin without a path, such as https://app.example.com, or "*"')
    return text


def _timezone(text: str) -> str:
    # UTC needs no time zone database, which slim images lack.
    if text != "UTC":
        try:
            zoneinfo.ZoneInfo(text)
        except (ValueError, KeyError, OSError):
            raise ValueError("must be a time zone's name, such as UTC or Europe/Berlin") from None
    return text


def _prefix(text: str) -> str:
    if _PREFIX.fullmatch(text) is None:
        raise ValueError("must be 1 to 64 letters, digits or . _ : - , such as sluice")
    return text


_LONGEST_KEY = 512  # characters that the door looks at


def _key(text: str) -> Secret:
    if not text:
        raise ValueError("must not be empty; give the key, such as ${TEAM_A_KEY}")
    if len(text) < 8 or _GRAPHIC.fullmatch(text) is None:
        raise ValueError("must be at least 8 ASCII characters without spaces, such as ${TEAM_A_KEY}")
    if len(text) > _LONGEST_KEY:
        raise ValueError(f"must be at most {_LONGEST_KEY} characters; no client could present it")
    return Secret(text)


def _digest(text: str) -> Secret:
    if _HEX_DIGEST.fullmatch(text) is None:
        raise ValueError("must be the key's SHA-256 as 64 hexadecimal digits")
    return Secret(text.lower())


def _api_key(text: str) -> Secret:
    if not text:
        raise ValueError("must not be empty; leave api_key out (or null) if the upstream asks for none")
    if _GRAPHIC.fullmatch(text) is None:
        raise ValueError("must be ASCII characters without spaces, such as ${UPSTREAM_KEY}")
    return Secret(text)


def _header_name(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise ValueError("must be a header's name, such as x-tenant")
    return text


def _header_value(text: str) -> Secret:
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("must be printable ASCII text on one line, without spaces around it")
    return Secret(text)


def _mask(secret: Secret) -> str:
    return str(secret)


Count = Annotated[int, Scalar(_whole(1, _FAR, 64))]
WholeNumber = Annotated[int, Scalar(_whole(0, _FAR, 64))]
WeightScalar = Annotated[int, Scalar(_whole(0, 1_000_000, 1))]
Workers = Annotated[int, Scalar(_whole(1, 1024, 4))]
TcpPort = Annotated[int, Scalar(_whole(0, 65535, 8080))]
Fraction = Annotated[float, Scalar(_fraction)]
ShareScalar = Annotated[float, Scalar(_share)]
LogProbability = Annotated[float, Scalar(_log_probability)]
Flag = Annotated[bool, Scalar(_flag)]
Seconds = Annotated[float, Scalar(_seconds, _show_seconds)]
PositiveSeconds = Annotated[float, Scalar(_positive_seconds, _show_seconds)]
Heartbeat = Annotated[float | None, Scalar(_heartbeat, _show_seconds)]
Bytes = Annotated[int, Scalar(_size, _show_size)]
Amount = Annotated[int, Scalar(parse_usd, _show_amount)]
Name = Annotated[str, Scalar(_name)]
Path = Annotated[str, Scalar(_path)]
Host = Annotated[str, Scalar(_host)]
Origin = Annotated[str, Scalar(_origin)]
Timezone = Annotated[str, Scalar(_timezone)]
Prefix = Annotated[str, Scalar(_prefix)]
BaseUrl = Annotated[str, Scalar(_base_url, private=True)]
RedisUrl = Annotated[Secret, Scalar(_redis_url, _show_redis_url, private=True)]
KeyText = Annotated[Secret, Scalar(_key, _mask, private=True)]
Digest = Annotated[Secret, Scalar(_digest, _mask, private=True)]
ApiKey = Annotated[Secret, Scalar(_api_key, _mask, private=True)]
HeaderName = Annotated[str, Scalar(_header_name)]
HeaderText = Annotated[Secret, Scalar(_header_value, _mask, private=True)]
