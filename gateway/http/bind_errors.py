"""Says which field of the config is wrong when a port cannot be opened."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_OPTIONS = {"server.port": " (--port)"}


@contextmanager
def naming(section: str, host: str, port: int) -> Iterator[None]:
    """Binding inside fails with an OSError whose text names `section`'s port or host.

    `section` is `server` or `admin`.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, explained(error, section, host, port)) from error


def explained(error: OSError, section: str, host: str, port: int) -> str:
    """What is wrong, and what to change."""
    field = f"{section}.port"
    if isinstance(error, socket.gaierror):
        return f"{section}.host {host}: no such host ({error.strerror})"
    if error.errno == errno.EADDRINUSE:
        return f"{field} {port} is taken (address already in use); choose another{_OPTIONS.get(field, '')}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{field} {port} needs root; choose one above 1023{_OPTIONS.get(field, '')}"
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return f"{section}.host {host} is no address of this machine"
    return f"{section}.host {host}, {field} {port}: {error.strerror or error}"
