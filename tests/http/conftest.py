"""Both transports, each behind the same small interface and under the same tests."""

from collections.abc import AsyncIterator

import pytest
from doubles.upstream import FaultUpstream
from transport_kit import KINDS, Caller, make

from gateway.core.clock import monotonic
from gateway.http.ticker import Ticker


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def caller(kind: str, upstream: FaultUpstream) -> AsyncIterator[Caller]:
    sweep = Ticker(0.01, monotonic)
    transport = make(kind, upstream.url, sweep)
    yield Caller(transport)
    await transport.close()
    sweep.close()
