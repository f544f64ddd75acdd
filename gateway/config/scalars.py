"""The scalar types of the schema: how each reads its text, shows its value and describes itself.

The YAML loader hands every scalar over as text, so `8080`, `"8080"` and `${PORT}` read alike and `off` is
never a boolean. A parser raises ValueError with a message that says what is allowed, with an example.
"""

import ipaddress
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from gateway.core.units import MASK, NANO, Secret, parse_duration, parse_size, parse_usd

_Json = Mapping[str, object]


class Section(Struct, frozen=True, kw_only=True):
    """Base class of every section."""


@dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """Annotation of a scalar field.

    `parse` reads its text and `show` prints its value; problems never quote a `private` one. `takes` is for
    the reference page; `json` holds the JSON Schemas of what YAML may make of a literal value.
    """

    parse: Callable[[str], Any]
    takes: str = "text"
    json: tuple[_Json, ...] = ({"type": ["string", "number", "boolean"]},)
    show: Callable[[Any], Any] = lambda value: value
    private: bool = False


_FAR: Final = 10**12
_INTEGER: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
_FRACTION: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,9})?", re.ASCII)
_SMALL_NUMBER: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,18})?([eE]-[0-9]{1,2})?", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_HOST_NAME: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)
_HEX_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_GRAPHIC: Final = re.compile(r"[!-~]+", re.ASCII)


def _number_or_text(pattern: str, kind: str = "number", **bounds: float) -> tuple[_Json, ...]:
    return {"type": kind, **bounds}, {"type": "string", "pattern": f"^{pattern}$"}


def _whole(low: int, high: int, example: int, takes: str = "") -> Scalar:
    def parse(text: str) -> int:
        if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
            span = f"of at least {low}" if high == _FAR else f"from {low} to {high}"
            raise ValueError(f"must be a whole number {span}, such as {example}")
        return int(text)

    bounds = {"minimum": low} if high == _FAR else {"minimum": low, "maximum": high}
    return Scalar(parse, takes or f"{low} to {high}", _number_or_text(_INTEGER.pattern, "integer", **bounds))


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


def _price(text: str) -> int:
    try:
        return parse_usd(text)
    except ValueError as error:
        # LiteLLM and others give prices for one token, often as 2.5e-07.
        each = Decimal(text) * 1_000_000 if _SMALL_NUMBER.fullmatch(text) else Decimal(0)
        if not 0 < each <= 1000 or round(each, 9) != each:
            raise
        raise ValueError(f"{error}; prices are for a million tokens ({each.normalize():f})") from None


def _up_to(high: int, example: float) -> Scalar:
    def parse(text: str) -> float:
        if _FRACTION.fullmatch(text) is None or float(text) > high:
            raise ValueError(f"must be a number from 0 to {high}, such as {example}")
        return float(text)

    return Scalar(parse, f"0 to {high}", _number_or_text(_FRACTION.pattern, minimum=0, maximum=high))


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
    """The name of an upstream: ASCII, because a response header carries it. ValueError for any other text."""
    if len(_name(text)) > 64 or not text.isascii():
        raise ValueError("must be 1 to 64 printable ASCII characters, because a response header carries it")
    return text


model_name = _name


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("must be the path of a file, such as ./sluice-usage.db")
    return text


_HOURS: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)", re.ASCII)


def _hours(text: str) -> str:
    begin, _, end = text.partition("-")
    if _HOURS.fullmatch(text) is None or begin == end:
        raise ValueError('must be two times of the day, such as "20:00-07:00"')
    return text


_STORAGE_SCHEMES: Final = ("file", "s3", "gs", "az")


def _storage_url(text: str) -> str:
    url = _split(text, _STORAGE_SCHEMES, "s3://bucket/folder")
    if url.scheme == "file":
        if url.netloc or not url.path.strip("/"):
            raise ValueError("must name a folder, such as file:///srv/batches")
    elif not url.hostname or "@" in url.netloc or url.query or url.fragment:
        raise ValueError("must name a bucket and nothing secret, such as s3://bucket/folder")
    return text.rstrip("/")


def _host(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        # Only digits and dots: a mistyped address, not a name.
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


def _jwks_url(text: str) -> str:
    url = _split(text, ("https", "http"), "https://login.example.com/keys")
    if "@" in url.netloc or not url.hostname or "#" in text:
        raise ValueError("must be a plain address without user or fragment, such as https://login.example.com/keys")
    if url.scheme == "http" and not is_loopback(url.hostname):
        raise ValueError("must begin with https://: whoever can change these keys can sign in as anybody")
    return text


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("must be an address or a network, such as 10.0.0.7 or 10.1.0.0/16") from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address or host name."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_REDIS_EXAMPLE: Final = "redis://127.0.0.1:6379/0"
_REDIS_PASSWORD: Final = "percent-encode the password (@ is %40, / %2F, # %23, ? %3F), or put it into redis.password"
_REDIS_DATABASE: Final = re.compile(r"/*[0-9]{0,5}/*", re.ASCII)
_SENTINEL_PATH: Final = re.compile(r"/[A-Za-z0-9._-]+(/[0-9]{0,5})?", re.ASCII)


def _redis_url(text: str) -> Secret:
    """No message quotes a part of the text: where a password ends in it is exactly what may be wrong."""
    scheme, found, rest = text.partition("://")
    if "@" in rest:
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        if authority.count("@") != rest.count("@") or authority.count("@") > 1:
            raise ValueError(f"holds an @ besides the one before the host; {_REDIS_PASSWORD}")
        if _GRAPHIC.fullmatch(rest) is None or re.search(r"[\[\]]", authority.rpartition("@")[0]):
            raise ValueError(f"holds characters that no address may hold; {_REDIS_PASSWORD}")
    if "#" in rest:
        raise ValueError(f"must hold no #; {_REDIS_PASSWORD}")
    if not found or not scheme.endswith("+sentinel"):
        url = _split(text, _REDIS_SCHEMES, _REDIS_EXAMPLE)
        if not (url.path if url.scheme == "unix" else url.hostname):
            raise ValueError(f"must name where Redis listens, such as {_REDIS_EXAMPLE}")
        if url.scheme != "unix" and _REDIS_DATABASE.fullmatch(url.path) is None:
            raise ValueError(f"must end with the number of a database or nothing, such as {_REDIS_EXAMPLE}")
        return Secret(text)
    example = "redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster"
    login, at, tail = rest.rpartition("@")
    hosts, _, path = tail.partition("/")
    if _SENTINEL_PATH.fullmatch("/" + path.partition("?")[0]) is None:
        raise ValueError(f"must name the sentinels and their master, such as {example}")
    for host in hosts.split(","):
        if not _split(f"{scheme}://{login}{at}{host}", _REDIS_SCHEMES, example).hostname:
            raise ValueError(f"must name each sentinel's host, such as {example}")
    return Secret(text)


def _show_redis_url(secret: Secret) -> str:
    scheme, _, rest = secret.reveal().partition("://")
    login, at, tail = rest.rpartition("@")
    if at:
        # Without a colon it may be a password in the place of the user.
        user, colon, _ = login.partition(":")
        login = f"{user}:{MASK}" if colon else MASK
    # redis-py accepts a password in the query too.
    path, mark, _ = tail.partition("?")
    return f"{scheme}://{login}{at}{path}{mark}{MASK if mark else ''}"


def _redis_password(text: str) -> Secret:
    if not text:
        raise ValueError("must not be empty; leave it out (or null) if Redis asks for none")
    return Secret(text)


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


_LONGEST_KEY: Final = 512  # characters; authentication reads no more


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


_DURATIONS: Final = _number_or_text(r"[0-9]{1,9}(\.[0-9]{1,9})?\s?(ms|s|m|h|d)?", minimum=0)
_SIZES: Final = _number_or_text(r"[0-9]{1,15}\s?(B|KiB|MiB|GiB)?", "integer", minimum=1)
_AMOUNTS: Final = _number_or_text(r"[0-9]{1,12}(\.[0-9]{1,9})?", minimum=0)
_LOG_PROBABILITIES: Final = _number_or_text(f"-?{_FRACTION.pattern}", minimum=-10, maximum=0)
_FLAGS: Final = ({"type": "boolean"}, {"enum": ["on", "yes", "off", "no", "true", "false"]})
_OFF: Final = {"enum": ["off", False, "false"]}
"""`off` as text, and as YAML 1.1 reads it."""


def _concurrency(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return _count(text)
    except ValueError as error:
        raise ValueError(f"{error}; or auto") from None


_COUNT: Final = _whole(1, _FAR, 64, "whole number from 1")
_count: Final[Callable[[str], int]] = _COUNT.parse
Count = Annotated[int, _COUNT]
Concurrency = Annotated[
    int | Literal["auto"], Scalar(_concurrency, "whole number from 1, or `auto`", (*_COUNT.json, {"enum": ["auto"]}))
]
WholeNumber = Annotated[int, _whole(0, _FAR, 64, "whole number from 0")]
WeightScalar = Annotated[int, _whole(0, 1_000_000, 1)]
Workers = Annotated[int, _whole(1, 1024, 4)]
TcpPort = Annotated[int, _whole(0, 65535, 8080)]
Ratio = Annotated[float, _up_to(10, 0.1)]
ShareScalar = Annotated[float, _up_to(1, 0.3)]
LogProbability = Annotated[float, Scalar(_log_probability, "-10 to 0", _LOG_PROBABILITIES)]
Flag = Annotated[bool, Scalar(_flag, "`true`, `false`", _FLAGS)]
Seconds = Annotated[float, Scalar(parse_duration, "duration", _DURATIONS, _show_seconds)]
PositiveSeconds = Annotated[float, Scalar(_positive_seconds, "duration above 0", _DURATIONS, _show_seconds)]
Heartbeat = Annotated[
    float | None, Scalar(_heartbeat, "duration above 0, or `off`", (*_DURATIONS, _OFF), _show_seconds)
]
Bytes = Annotated[int, Scalar(_size, "size", _SIZES, _show_size)]
Amount = Annotated[int, Scalar(parse_usd, "decimal number", _AMOUNTS, _show_amount)]
TokenPrice = Annotated[int, Scalar(_price, "decimal number", _AMOUNTS, _show_amount)]
Name = Annotated[str, Scalar(_name)]
Path = Annotated[str, Scalar(_path, "path")]
Hours = Annotated[str, Scalar(_hours, "two times of the day")]
StorageUrl = Annotated[str, Scalar(_storage_url, "file, s3, gs or az address", private=True)]
Host = Annotated[str, Scalar(_host, "address or host name")]
NetworkText = Annotated[str, Scalar(_network, "addresses or networks")]
Origin = Annotated[str, Scalar(_origin, "origins")]
Timezone = Annotated[str, Scalar(_timezone, "time zone name")]
Prefix = Annotated[str, Scalar(_prefix)]
JwksUrl = Annotated[str, Scalar(_jwks_url, "https address", private=True)]
BaseUrl = Annotated[str, Scalar(_base_url, "http(s) address", private=True)]
RedisUrl = Annotated[Secret, Scalar(_redis_url, "redis address", show=_show_redis_url, private=True)]
RedisPassword = Annotated[Secret, Scalar(_redis_password, show=str, private=True)]
KeyText = Annotated[Secret, Scalar(_key, show=str, private=True)]
Digest = Annotated[Secret, Scalar(_digest, "64 hex digits", show=str, private=True)]
ApiKey = Annotated[Secret, Scalar(_api_key, show=str, private=True)]
HeaderName = Annotated[str, Scalar(_header_name, "header names")]
HeaderText = Annotated[Secret, Scalar(_header_value, show=str, private=True)]
