"""The reason for each way in which no connection comes about; none names a host."""

import errno
import socket

import pytest

from gateway.core.errors import CONNECT, GATEWAY_OVERLOADED, LOCAL, UPSTREAM_UNAVAILABLE
from gateway.http.client.connect_errors import failure_of

UPSTREAM = [
    (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused"),
    (ConnectionResetError(errno.ECONNRESET, "x"), "connection reset by peer"),
    (OSError(errno.EHOSTUNREACH, "10.1.2.3"), "no route to host"),
    (OSError(errno.ENETUNREACH, "10.1.2.3"), "network is unreachable"),
    (TimeoutError(errno.ETIMEDOUT, "x"), "no answer"),
    (socket.gaierror(socket.EAI_NONAME, "secret.test"), "its name does not exist"),
    (socket.gaierror(socket.EAI_AGAIN, "secret.test"), "its name cannot be looked up now"),
    (UnicodeError("label too long"), "its name is no host name"),
    (OSError("Multiple exceptions: 10.1.2.3"), "no connection"),
]


@pytest.mark.parametrize(("error", "reason"), UPSTREAM, ids=lambda value: str(value)[:20])
def test_the_upstream_cannot_be_reached(error: OSError | UnicodeError, reason: str) -> None:
    failure = failure_of("a", error)
    assert (failure.kind, failure.cause) == (UPSTREAM_UNAVAILABLE, CONNECT)
    assert failure.message == f"Upstream `a` cannot be reached: {reason}."


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL])
def test_what_this_machine_lacks_is_not_the_upstreams_fault(number: int) -> None:
    failure = failure_of("a", OSError(number, "x"))
    assert (failure.kind, failure.cause) == (GATEWAY_OVERLOADED, LOCAL)
    assert failure.as_rejection().retry_after == 1.0
