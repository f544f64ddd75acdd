"""Finds free ports, before anything slow begins."""

import errno
import socket
from collections.abc import Collection

from backend.errors import Problem

_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def free(host: str, port: int) -> bool:
    """Whether a server could listen there now. `Problem` for an address that this machine does not have."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do, so that connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno in _NO_SUCH_ADDRESS:
                raise Problem(f"this machine cannot listen on {host}: {error.strerror}") from error
            if error.errno == errno.EACCES:
                raise Problem(f"port {port} needs root; choose one above 1023") from error
            return False
        return True


def any_free(host: str, excluded: Collection[int]) -> int:
    """A free port that is not in `excluded`. Another process may still take it before it is used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port not in excluded:
            return port
