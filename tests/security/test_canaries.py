"""Secrets that are planted wherever one can be, and looked for wherever anything is told."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles import replies
from doubles.gateway import GatewayProcess
from doubles.rawclient import call
from doubles.script import RST, event, full, stream
from doubles.settings import settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, S0, ask

CANARIES = {
    "a client's key": "canary01-client-key-7f3a",
    "a client's key that the config knows by its digest": "canary02-digest-key-91bc",
    "that digest": hashlib.sha256(b"canary02-digest-key-91bc").hexdigest(),
    "an upstream's key": "canary03-upstream-key-55d0",
    "an upstream's header": "canary04-upstream-header-0e",
    "the password of Redis": "canary05-redis-password-c4",
    "a wrong key": "canary06-wrong-key-11aa",
    "a cookie": "canary07-cookie-b8",
    "an authorization of a proxy": "canary08-proxy-authorization-3c",
    "a query string": "canary09-query-string-d2",
    "a prompt": "canary10-prompt-e6",
    "an answer": "canary11-answer-f0",
    "a header that may travel": "canary12-forwarded-header-a9",
    "the upstream's path": "canary13-path-of-the-upstream-66",
}
KEY = CANARIES["a client's key"]
PATH = CANARIES["the upstream's path"]
ECHOED = " ".join(
    [CANARIES["an upstream's key"], CANARIES["an upstream's header"], CANARIES["an answer"], "at 10.9.8.7:9"]
)
FAILURES: list[Any] = [
    [RST],
    [full(CANARIES["an answer"].encode())],
    [full(b"", 401)],
    replies.error(401, ECHOED),
    replies.error(500, ECHOED),
    replies.error(503, ECHOED),
    replies.error(200, ECHOED),
    stream(event({"error": {"message": ECHOED}})),
]


class TextProcess(GatewayProcess):
    """One that logs for people: where it listens is known beforehand, not read from its log."""

    def _listening(self) -> bool:
        return " info listening " in self.log


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def planted(upstream: FaultUpstream, folder: Path, shape: str, workers: int, **sections: Any) -> GatewayProcess:
    """A gateway that knows the canaries, logs all it can, and whose Redis is not there."""
    config = settings(
        upstream.url.removesuffix("/v1") + f"/{PATH}/v1",
        server={"port": free_port(), "workers": workers},
        admin={"port": free_port()},
        upstream={
            "api_key": "${UPSTREAM_KEY}",
            "headers": {"x-token": CANARIES["an upstream's header"]},
            "forward_headers": ["x-tenant"],
            "breaker": {"failures": 1000},
        },
        redis={"url": f"redis://:{CANARIES['the password of Redis']}@127.0.0.1:1/0"},
        log={"level": "debug", "format": shape},
        **sections,
    )
    config["keys"] = [
        {"name": "team-a", "key": "${CLIENT_KEY}", "limits": {"rpm": 1000}},
        {"name": "team-b", "key_sha256": CANARIES["that digest"]},
    ]
    environ = {"UPSTREAM_KEY": CANARIES["an upstream's key"], "CLIENT_KEY": KEY}
    process = (TextProcess if shape == "text" else GatewayProcess)(config, folder, environ)
    process.url = f"http://127.0.0.1:{config['server']['port']}"
    process.admin_url = f"http://127.0.0.1:{config['admin']['port']}"
    return process


def arguments(pid: int) -> Iterator[bytes]:
    """What anybody on the machine can read of a process and of those it has started."""
    yield Path(f"/proc/{pid}/cmdline").read_bytes()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        yield from arguments(int(child))


async def drive(port: int, upstream: FaultUpstream) -> str:
    """Every kind of failure, with every canary a client can send; gives all that the client was told."""
    told = []
    given = [
        ("authorization", f"Bearer {KEY}"),
        ("cookie", f"sid={CANARIES['a cookie']}"),
        ("proxy-authorization", f"Basic {CANARIES['an authorization of a proxy']}"),
        ("x-tenant", CANARIES["a header that may travel"]),
    ]
    by_digest = [("x-api-key", CANARIES["a client's key that the config knows by its digest"])]
    wrong = [("api-key", CANARIES["a wrong key"])]
    path = f"{CHAT}?key={CANARIES['a query string']}"
    prompt = {"messages": [{"role": "user", "content": CANARIES["a prompt"]}]}
    for script in FAILURES:
        for body in (C0, S0):
            upstream.reply(script)
            told.append(await ask(port, {**body, **prompt}, given, path))
    for asked in (
        b"{" + CANARIES["a prompt"].encode(),
        {**C0, **prompt, "n": CANARIES["a prompt"]},
        {**C0, **prompt, "stop": [CANARIES["a prompt"]] * 2000},
        {**C0, **prompt, "cache_salt": CANARIES["a prompt"]},
        {**C0, **prompt, "stream": CANARIES["a prompt"]},
        {**C0, "model": "nope", **prompt},
    ):
        told.append(await ask(port, asked, given, path))
    told.append(await ask(port, {**C0, **prompt}, by_digest, path + "&more"))
    for where in (
        path,
        f"/nope?key={CANARIES['a query string']}",
        "/v1/v1/models?" + CANARIES["a query string"],
    ):
        told.append(await ask(port, {**C0, **prompt}, wrong, where))
    told.append(await call(port, "GET", "/v1/models", headers=wrong))
    return "\n".join(f"{answer.head!r} {answer.body!r}" for answer in told)


@pytest.mark.parametrize(("shape", "workers"), [("json", 1), ("text", 2)])
async def test_no_canary_is_told_anywhere(upstream: FaultUpstream, tmp_path: Path, shape: str, workers: int) -> None:
    with planted(upstream, tmp_path, shape, workers) as gateway:
        told = {"answers": await drive(gateway.port, upstream)}
        for path in (
            "/metrics",
            "/admin/config",
            "/admin/stack",
            "/admin/upstreams",
            "/admin/usage",
            "/admin/savings",
            "/admin/budgets",
            "/admin/keys",
            "/admin/calls?limit=500",
            "/readyz",
            *("/", "/upstreams", "/models", "/keys", "/calls?limit=500", "/try"),
        ):
            answer = await call(gateway.admin_port, "GET", path)
            assert answer.status == 200, path
            told[path] = answer.body.decode()
        kept = [one["id"] for one in json.loads(told["/admin/calls?limit=500"])["calls"]]
        assert len(kept) >= 2 * len(FAILURES)
        for id in kept:
            for path in (f"/admin/calls/{id}", f"/calls/{id}"):
                told[path] = (await call(gateway.admin_port, "GET", path)).body.decode()
                if "(account 401)" in told[path]:  # the refusal of the gateway's account, as in the log
                    told[path] = told[path].replace(CANARIES["an answer"], "")
        told["/admin/nope"] = str((await call(gateway.admin_port, "GET", "/admin/nope?" + KEY)).body)
        processes = list(arguments(gateway.process.pid))
        assert len(processes) >= workers
        told["arguments"] = b" ".join(processes).decode()
        gateway.stop()
        told["log"] = gateway.log
    # What may be shown: an upstream's own words to whoever asked, its masked refusal of the gateway's account in
    # the log, and its address to whoever configured it.
    for what, where in (("an answer", "answers"), ("an answer", "log"), ("the upstream's path", "/admin/config")):
        assert CANARIES[what] in told[where]
        told[where] = told[where].replace(CANARIES[what], "")
    for what, canary in CANARIES.items():
        assert [where for where, text in told.items() if canary in text] == [], what
    assert "team-a" in told["log"]
    assert "redis" in told["log"].lower()
    assert len(upstream.calls) == 2 * len(FAILURES) + 2  # `cache_salt` passes: this upstream is no engine
    seen = b" ".join(one.head + one.body for one in upstream.calls).decode()
    for what in ("an upstream's key", "an upstream's header", "a header that may travel", "a prompt"):
        assert CANARIES[what] in seen, what  # the canaries were alive
    for what in (
        "a client's key",
        "a cookie",
        "an authorization of a proxy",
        "a query string",
        "a wrong key",
    ):
        assert CANARIES[what] not in seen, what


async def test_with_bodies_a_call_shows_its_own_body_and_no_secret_of_the_config(
    upstream: FaultUpstream, tmp_path: Path
) -> None:
    with planted(upstream, tmp_path, "json", 1, inspector={"bodies": True}) as gateway:
        await drive(gateway.port, upstream)
        secrets = " ".join(CANARIES.values())
        body = {**C0, "messages": [{"role": "user", "content": f"all of them: {secrets}"}]}
        assert (await ask(gateway.port, body, [("authorization", f"Bearer {KEY}"), ("x-request-id", "all")])).status
        page = (await call(gateway.admin_port, "GET", "/admin/calls?limit=500")).json()
        shown = ""
        for id in [one["id"] for one in page["calls"]]:
            for path in (f"/admin/calls/{id}", f"/calls/{id}"):
                shown += (await call(gateway.admin_port, "GET", path)).body.decode()
        for path in ("/", "/upstreams", "/models", "/keys", "/try"):
            shown += (await call(gateway.admin_port, "GET", path)).body.decode()
        gateway.stop()
    assert CANARIES["a prompt"] in shown
    assert "all of them: ***" in shown
    for what in ("a client's key", "an upstream's key", "an upstream's header", "the password of Redis"):
        assert CANARIES[what] not in shown, what


@pytest.mark.parametrize(
    "change",
    [
        {"upstreams": {"local": {"base_url": "http://user:canary14-userinfo@127.0.0.1:9/v1"}}},
        {"upstreams": {"local": {"base_url": "http://127.0.0.1:9/v1", "api_key": ["canary14-userinfo"]}}},
        {"upstreams": {"local": {"base_url": "http://h/", "headers": {"x": "canary14-userinfo\n"}}}},
        {"redis": {"url": "redis://:canary14-userinfo@:x"}},
        {"keys": [{"name": "a", "key": "canary14-userinfo", "key_sha256": "canary14-userinfo"}]},
        {"keys": [{"name": "a", "key_sha256": "canary14-userinfo"}]},
    ],
)
def test_a_config_that_is_refused_tells_no_secret_of_it(
    change: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from gateway.cli.main import main

    file = tmp_path / "sluice.yaml"
    file.write_text(json.dumps({**settings("http://127.0.0.1:9/v1"), **change}), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["check", "--show", "--config", str(file)]))
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert "canary14" not in out + err
    assert err.count(os.linesep) >= 1
