"""A port that cannot be opened is named by its field in the config."""

import errno
import socket

import pytest
from doubles.gateway import StartGateway
from doubles.settings import settings

from gateway.http.bind_errors import explained, naming


@pytest.mark.parametrize("section", ["server", "admin"])
async def test_a_taken_port_is_named(start_gateway: StartGateway, section: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = settings("http://127.0.0.1:1/v1")
        config[section] = {**config[section], "port": port}
        with pytest.raises(OSError, match=f"{section}.port {port} is taken") as raised:
            await start_gateway(config)
        assert raised.value.errno == errno.EADDRINUSE
        assert ("(--port)" in str(raised.value)) == (section == "server")


def test_an_address_of_another_machine() -> None:
    with (
        socket.socket() as bound,
        pytest.raises(OSError, match=r"server\.host 192\.0\.2\.1 is no address of this machine"),
        naming("server", "192.0.2.1", 8080),
    ):
        bound.bind(("192.0.2.1", 8080))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EACCES, "Permission denied"), "admin.port 80 needs root; choose one above 1023"),
        (socket.gaierror(-2, "Name or service not known"), "admin.host h: no such host (Name or service not known)"),
        (OSError(errno.EAFNOSUPPORT, "no"), "admin.host h is no address of this machine"),
        (OSError(errno.ENFILE, "Too many open files"), "admin.host h, admin.port 80: Too many open files"),
    ],
)
def test_other_reasons(error: OSError, said: str) -> None:
    assert explained(error, "admin", "h", 80) == said
