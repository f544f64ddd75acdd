"""Names that clients make up add no series and no memory (METR-01)."""

import gc
import sys

from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.settings import KEY, settings
from doubles.upstream import FaultUpstream
from doubles.vocabulary import C0, CHAT, E0, EMBEDDINGS

from gateway.core.call import Call, ClientRequest, Credentials
from gateway.core.errors import INVALID_API_KEY, MODEL_NOT_FOUND, Rejection
from gateway.pipeline.gates import admit

MANY = 100_000
SOME = 600


async def series(gateway: InProcessGateway) -> int:
    answer = await call(gateway.admin_port, "GET", "/metrics")
    return sum(not line.startswith(b"#") for line in answer.body.splitlines())


async def test_metr_01_a_hundred_thousand_names_and_keys_leave_nothing_behind(
    upstream: FaultUpstream, start_gateway: StartGateway
) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True, inspector={"calls": 100}))
    stack = gateway._gateway._serve.generation.stack

    async def one(number: int, key: str, expected: object) -> None:
        made = Call(ClientRequest(CHAT, f"id-{number}", Credentials(f"Bearer {key}", None, None)), 1.0)
        answer = admit(stack.door, made, 1.0)
        if answer is None:
            made.request.model = f"made-up-{number}"
            made.request.body = b'{"model":"%s"}' % made.request.model.encode()
            answer = await stack.handle(made)
        assert isinstance(answer, Rejection)
        assert answer.kind is expected
        made.response.status, made.response.outcome = answer.kind.status, answer.kind.outcome
        made.lease.settle(made, 2.0)

    async def all_of(count: int) -> None:
        for number in range(count):
            await one(number, f"guess-{number:010}", INVALID_API_KEY)
            await one(number, KEY, MODEL_NOT_FOUND)

    await all_of(100)
    before = await series(gateway)
    gc.collect()
    blocks = sys.getallocatedblocks()
    await all_of(MANY)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 1000
    assert await series(gateway) == before
    metrics = await gateway.metrics()
    assert metrics.value("sluice_requests_total") == 2 * MANY + 200
    assert metrics.value("sluice_requests_total", model="other") == 2 * MANY + 200


async def test_metr_01_over_the_wire_too(upstream: FaultUpstream, start_gateway: StartGateway) -> None:
    gateway = await start_gateway(settings(upstream.url, keys=True))

    async def all_of(count: int) -> None:
        for number in range(0, count, 50):
            async with await RawClient.open(gateway.port) as client:
                for more in range(number, min(number + 50, count)):
                    await client.request(
                        *(
                            ("POST", CHAT, {**C0, "model": f"m-{more}", "user": f"u-{more}"}),
                            ("POST", EMBEDDINGS, {**E0, "model": f"m-{more}"}),
                            ("POST", f"/v1/x{more}", C0),
                            ("REPORT", f"{CHAT}?x={more}", C0),
                            ("GET", f"/v1/models/m-{more}"),
                            ("GET", f"/x/../{more}"),
                        )[more % 6],
                        headers=[
                            ("authorization", f"Bearer {KEY}"),
                            ("x-request-id", f"r-{more}"),
                            ("host", f"h{more}.test"),
                        ],
                    )
                    assert (await client.response()).status in (404, 405)
        for number in range(count):
            given = [("x-api-key", f"guess-{number}")]
            assert (await call(gateway.port, "POST", CHAT, C0, given)).status in (401, 429)

    await all_of(120)  # past the first guesses too many
    before = await series(gateway)
    await all_of(SOME)
    assert await series(gateway) == before
    assert upstream.calls == []
