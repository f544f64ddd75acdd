"""Finds out which ports are free, before minutes are spent on anything else."""

import errno
import socket
from collections.abc import Collection

from backend.errors import Problem

_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def free(host: str, port: int) -> bool:
    """Whether a server could listen there now. An address that this machine does not have is a `Problem`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As servers do, so that connections still closing down do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno in _NOT_OURS:
                raise Problem(f"this machine cannot listen on {host}: {error.strerror}") from error
            if error.errno == errno.EACCES:
                raise Problem(f"port {port} needs root; choose one above 1023") from error
            return False
        return True


def any_free(host: str, but: Collection[int]) -> int:
    """A free port that is not in `but`. It is only likely to be free still when it is used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port not in but:
            return port
