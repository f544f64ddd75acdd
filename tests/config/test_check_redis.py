"""`--connect` asks the config's Redis, a real one, and names what is wrong."""

import asyncio
import io
import socket

import pytest
from doubles.redis_server import RedisServer
from sample_configs import MINIMAL

from gateway.cli import check
from gateway.cli.check_redis import ask_redis
from gateway.config.model import RedisConfig
from gateway.core.units import Secret

CANARY = "canary0123456789"


async def asked(url: str) -> str | None:
    return await ask_redis(RedisConfig(url=Secret(url)))


@pytest.fixture
def guarded(tmp_path):
    with RedisServer(tmp_path) as server:
        rules = f"on >{CANARY} ~sluice* +ping +hello +auth +client"
        assert server.command("ACL", "SETUSER", "limited", *rules.split()) == b"+OK\r\n"
        assert server.command("CONFIG", "SET", "requirepass", CANARY) == b"+OK\r\n"
        yield server


async def test_one_that_answers_is_good(redis_server):
    assert await asked(redis_server.url) is None


async def test_logins(guarded):
    at = f"127.0.0.1:{guarded.port}"
    rejected = f"{at} rejected the login; check user and password in redis.url"
    assert await asked(f"redis://{at}") == rejected
    assert await asked(f"redis://:wrong-{CANARY}@{at}") == rejected
    assert await asked(f"redis://nobody:{CANARY}@{at}") == rejected
    assert await asked(f"redis://:{CANARY}@{at}") is None
    assert await asked(f"redis://limited:{CANARY}@{at}") is None


async def test_addresses(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert await asked(f"redis://:{CANARY}@127.0.0.1:{port}") == (
            f"cannot connect to 127.0.0.1:{port} (Connection refused); check redis.url"
        )
    assert await asked("redis://no-such-host.invalid") == "no such host: no-such-host.invalid; check redis.url"
    assert await asked(f"unix://{tmp_path}/none.sock") == (
        f"cannot connect to {tmp_path}/none.sock (No such file or directory); check redis.url"
    )


async def test_what_is_not_redis_or_tls(redis_server, monkeypatch):
    monkeypatch.setattr("gateway.cli.check_redis._TIMEOUT_S", 0.5)
    tls = f"rediss://127.0.0.1:{redis_server.port}"
    assert "speak redis:// instead of rediss://?" in str(await asked(tls))

    async def http(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    async with server:
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await asked(f"redis://{at}") == (f"{at} does not answer as Redis does; does it speak rediss:// (TLS)?")


def test_the_command_fails_for_a_redis_that_is_away(tmp_path, monkeypatch):
    async def no_upstreams(config):
        return []

    monkeypatch.setattr("gateway.cli.check_upstreams.ask_all", no_upstreams)
    file = tmp_path / "sluice.yaml"
    for url, expected in ((f"redis://:{CANARY}@127.0.0.1:1/0", 2), (None, 0)):
        file.write_text(MINIMAL + (f"redis: {{url: '{url}'}}\n" if url else ""), encoding="utf-8")
        out, err = io.StringIO(), io.StringIO()
        assert check.run(file, False, True, out=out, err=err, environ={}) == expected
        assert CANARY not in out.getvalue() + err.getvalue()
        assert ("redis: cannot connect to 127.0.0.1:1" in err.getvalue()) == (expected == 2)
