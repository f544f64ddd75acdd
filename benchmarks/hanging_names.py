"""`python -m benchmarks.hanging_names serve --config FILE`: the gateway, with a name server under control.

Every name that ends in `.bench.test` is 127.0.0.1, but lookups of those that begin with `hangs` do not return: as
with a name server that does not answer for one domain.
"""

import socket
import threading

from benchmarks.arguments import arguments
from gateway.cli.main import main
from gateway.http.client import resolver

DOMAIN = ".bench.test"
HANGS = "hangs"


def control() -> None:
    """Replace the system's lookup in this process."""
    system, never = resolver.system_lookup, threading.Event()

    def lookup(host: str) -> list[resolver.Address]:
        if not host.endswith(DOMAIN):
            return system(host)
        if host.startswith(HANGS):
            never.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))]

    resolver.system_lookup = lookup


if __name__ == "__main__":
    (command,) = arguments(__doc__, command=list)
    control()
    raise SystemExit(main(command))
