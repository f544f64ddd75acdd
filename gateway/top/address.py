"""Where the admin port of the gateway is, as its config says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.config.environment import Expander, TooLargeError
from gateway.config.read import Reader
from gateway.config.source import UnreadableError, environment, read_text
from gateway.config.yaml_text import BrokenYamlError, parse

DEFAULT: Final = "http://127.0.0.1:9464"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class UnknownError(Exception):
    """The config does not tell; the message says why, in one line."""


def admin_address(path: Path, environ: Mapping[str, str], *, named: bool) -> str:
    """The address in this config; the default where there is no such file and the user has not named one.

    Only `admin` is looked at: variables that the rest of the config needs may be unset here.
    """
    if not named and not path.exists():
        return DEFAULT
    try:
        document, _ = parse(read_text(path))
        expander = Expander(environment(path.parent, environ))
        section = expander.expand(document.get("admin") if isinstance(document, dict) else None)
    except (UnreadableError, BrokenYamlError, TooLargeError) as error:
        raise UnknownError(f"{path}: {error}") from None
    reader = Reader()
    admin = reader.config({"admin": section}).admin
    wrong = [*expander.problems, *(one for one in reader.problems if one.path.startswith("admin"))]
    if wrong:
        raise UnknownError(str(wrong[0]))
    if admin.port == 0:
        raise UnknownError(
            "admin.port: 0 takes a free port, which the config does not know; name it with --admin"
        )
    host = _EVERYWHERE.get(admin.host, admin.host)
    return f"http://[{host}]:{admin.port}" if ":" in host else f"http://{host}:{admin.port}"
