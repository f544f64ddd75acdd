"""Wrong keys are slowed, each address by itself; a right key from the same address never is."""

from doubles.gateway import StartGateway
from doubles.rawclient import RawClient, call
from doubles.settings import AUTH, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, ask

from gateway.auth.failure_limiter import PER_MINUTE, AuthFailureLimiter
from gateway.core.errors import AUTH_RATE_LIMITED


def test_a_burst_passes_and_then_one_a_second() -> None:
    keys = AuthFailureLimiter()
    assert PER_MINUTE == 60
    assert [keys.reject("192.0.2.1", 100.0) for _ in range(60)] == [None] * 60
    refusal = keys.reject("192.0.2.1", 100.0)
    assert refusal is not None
    assert refusal.kind is AUTH_RATE_LIMITED
    assert refusal.retry_after == 1.0
    assert keys.reject("192.0.2.1", 100.5) is not None
    assert keys.reject("192.0.2.1", 101.0) is None
    assert keys.reject("192.0.2.1", 101.0) is not None


def test_a_refused_guess_does_not_lengthen_the_wait() -> None:
    keys = AuthFailureLimiter(per_minute=60)
    for _ in range(1000):
        keys.reject("192.0.2.1", 100.0)
    assert keys.reject("192.0.2.1", 101.0) is None


def test_each_address_has_its_own_and_an_ipv6_network_is_one() -> None:
    keys = AuthFailureLimiter(per_minute=1)
    for address in ("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "", "fe80::1%eth0"):
        assert keys.reject(address, 5.0) is None, address
    for address in (
        "192.0.2.1",
        "::ffff:192.0.2.2",
        "2001:db8::2",
        "2001:db8:0:0:ffff::",
        "",
        "fe80::2%eth1",
    ):
        assert keys.reject(address, 5.0) is not None, address


def test_so_many_addresses_are_remembered_and_the_most_recent_ones() -> None:
    keys = AuthFailureLimiter(per_minute=1, max_addresses=100)
    assert keys.reject("198.51.100.1", 5.0) is None
    for number in range(100_000):
        assert keys.reject(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 5.0) is None
        if number % 50 == 0:
            assert keys.reject("198.51.100.1", 5.0) is not None
    assert len(keys) == 100


async def test_guesses_get_429_and_a_right_key_from_the_same_address_never(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))
    # So few that the next one is due after this test.
    gateway._gateway._serve._auth_failures = AuthFailureLimiter(per_minute=2)
    statuses = []
    async with await RawClient.open(gateway.port) as client:
        for number in range(2):
            given = [("authorization", f"Bearer guess-{number:08}")] if number % 2 else []
            await client.request("POST", CHAT, C0, given)
            statuses.append((await client.response()).status)
    assert statuses == [401, 401]
    async with await RawClient.open(gateway.port) as client:
        await client.request("GET", "/v1/models", headers=[("x-api-key", "guess-again")])
        answer = await client.response()
        assert answer.status == 429
        assert (answer.error["type"], answer.error["code"]) == ("requests", "rate_limit_exceeded")
        assert 0 < int(answer.header("retry-after") or "") <= 30
        assert answer.header("connection") == "close"
        assert await client.ending() == "fin"
    for _ in range(5):
        assert (await ask(gateway.port, C0, [AUTH])).status == 200
        assert (await ask(gateway.port, C0)).status == 429
    assert (await call(gateway.port, "GET", "/health")).status == 200
    assert len(upstream.calls) == 5
