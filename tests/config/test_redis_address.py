"""Addresses and passwords of Redis: any password works in `redis.password`, and no message has a part of one."""

import io
from pathlib import Path
from urllib.parse import quote

import pytest
from doubles.redis_server import RedisServer
from sample_configs import MINIMAL

from gateway.cli import check
from gateway.cli.check_redis import ask_redis
from gateway.config.model import RedisConfig
from gateway.config.show import effective
from gateway.core.units import Secret

ODD = [
    "P@ss/w0rd",
    "P@ss#1",
    "hunter2@corp?x",
    "a@b@c",
    "p/a:s@s",
    "x[y]z@",
    "#hash",
    "who?",
    "sla/sh",
    "blank in it@",
    "café@bar",
    "quote\"'@",
    "100%41@",
]
PARTS = ("ss/w0rd", "w0rd", "hunter2", "corp", "hash", "slash", "sh@", "café", "ss#1", "ss@", "it@", "quote", "b@c")


def problems(text: str, load_text) -> str:
    return "\n".join(str(one) for one in load_text(MINIMAL + text, {}).problems)


@pytest.mark.parametrize("password", ODD)
def test_a_password_that_would_end_elsewhere_is_refused_with_advice(load_text, password: str):
    loaded = load_text(MINIMAL + 'redis: {url: "redis://:${PW}@127.0.0.1:6379/0"}\n', {"PW": password})
    (problem,) = loaded.problems
    assert str(problem).startswith("redis.url: ")
    assert "percent-encode the password (@ is %40" in str(problem)
    assert "or put it into redis.password" in str(problem)
    assert not [part for part in PARTS if part in password and part in str(problem)]


@pytest.mark.parametrize("password", [*ODD, "co:lon", "100%41", "${PLAIN}", "*&!", "\\"])
def test_any_password_works_in_its_own_field_or_encoded_and_is_never_shown(good, password: str):
    environ = {"PW": password, "ENCODED": quote(password, safe="")}
    for redis in (
        '{url: "redis://sluice@127.0.0.1:6379/0", password: "${PW}"}',
        '{url: "redis://sluice:${ENCODED}@127.0.0.1:6379/0"}',
    ):
        config = good(MINIMAL + f"redis: {redis}\n", environ).config
        assert config.redis.address().reveal() == f"redis://sluice:{environ['ENCODED']}@127.0.0.1:6379/0"
        shown = effective(config)["redis"]
        assert shown["url"] in (
            "redis://sluice@127.0.0.1:6379/0",
            "redis://sluice:***@127.0.0.1:6379/0",
            "redis://***@127.0.0.1:6379/0",
        )
        assert shown["password"] in (None, "***")
        assert password not in repr(config)


@pytest.mark.parametrize(
    ("redis", "expected"),
    [
        ('{url: "redis://:a@h", password: b}', "redis.password: redis.url holds a password too"),
        ('{url: "redis://h?password=a", password: b}', "redis.password: redis.url holds a password too"),
        ('{url: "redis://hunter2@h"}', "redis.url: names a user and no password"),
        ('{url: "redis://h", password: ""}', "redis.password: must not be empty"),
        ('{url: "redis://h/name"}', "redis.url: must end with the number of a database"),
        ('{url: "redis+sentinel://h:1,i:2"}', "redis.url: must name the sentinels and their master"),
        ('{url: "redis+sentinel://h:1,i:x/mymaster"}', "redis.url: must be an address that begins with"),
        ('{url: "redis+sentinel://h:1,,i/mymaster"}', "redis.url: must name each sentinel's host"),
        ('{url: "redis+sentinel://:hunter2@x@h:1/mymaster"}', "redis.url: holds an @ besides"),
        ('{url: "redis+cluster://h"}', "redis.url: must be an address that begins with"),
    ],
)
def test_addresses_that_cannot_be_meant(load_text, redis: str, expected: str):
    found = problems(f"redis: {redis}\n", load_text)
    assert expected in found
    assert "hunter2" not in found


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "rediss://h:6380/3",
        "redis://user:@h",
        "redis://user:p%40ss@h:1/0?client_name=x",
        "redis://[::1]:6379/0",
        "unix:///run/redis.sock",
        "unix://:pw@/run/redis.sock?db=1",
        "redis+sentinel://h/mymaster",
        "rediss+sentinel://user:pw@h:1,[::1]:2,i/my.master-1/3",
    ],
)
def test_addresses_that_work(good, url: str):
    assert good(MINIMAL + f"redis: {{url: '{url}'}}\n", {}).config.redis.address().reveal() == url


@pytest.mark.parametrize("password", [one for one in ODD if " " not in one])
async def test_a_real_redis_takes_it(tmp_path: Path, password: str):
    with RedisServer(tmp_path, "--requirepass", password) as server:
        url = Secret(f"redis://127.0.0.1:{server.port}/0")
        assert await ask_redis(RedisConfig(url=url, password=Secret(password))) is None
        wrong = await ask_redis(RedisConfig(url=url, password=Secret(password + "x")))
        assert wrong == f"127.0.0.1:{server.port} rejected the login; check user and password in redis.url"


def test_check_prints_no_part_of_it(tmp_path: Path):
    path = tmp_path / "sluice.yaml"
    path.write_text(MINIMAL + 'redis: {url: "redis://u@127.0.0.1:1/0", password: "${PW}"}\n', encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    assert check.run(path, True, False, out=out, err=err, environ={"PW": "hunter2@corp?x"}) == 0
    assert "hunter2" not in out.getvalue() + err.getvalue()
    assert "corp" not in out.getvalue() + err.getvalue()
    assert "redis://***@127.0.0.1:1/0" in out.getvalue()
