"""How calls follow one another: closed and open loops."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

import pytest
from aiolimiter import AsyncLimiter
from doubles.virtual_time import VirtualTimeLoop
from planned import made

from gateway.cli.bench.client import TimedCall
from gateway.cli.bench.driver import LoadDriver, Run


def texts():
    return (str(number) for number in count())


class Endpoint:
    """Answers each call when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[str]] = []
        self.prompts: list[str] = []
        self.due: list[float] = []
        self.most = 0

    async def call(self, prompt: str, due: float) -> TimedCall:
        self.prompts.append(prompt)
        self.due.append(due)
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        self.most = max(self.most, len(self.waiting))
        return TimedCall(due, end=due, error=await answer)

    async def asked(self, calls: int) -> None:
        async with asyncio.timeout(5):
            while len(self.prompts) < calls:
                await asyncio.sleep(0)

    def answer(self, error: str = "") -> None:
        self.waiting.pop(0).set_result(error)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


async def test_a_closed_loop_has_a_constant_number_under_way_until_all_are_done(endpoint: Endpoint) -> None:
    ended: list[TimedCall] = []
    drive = LoadDriver(made("http://h", "--concurrency", "3"), lambda: 7.0, ended.append)
    running = asyncio.create_task(drive.run(endpoint.call, texts(), Random("1"), 5, None))
    await endpoint.asked(3)
    endpoint.answer("timeout")
    await endpoint.asked(4)
    for _ in range(4):
        if not endpoint.waiting:
            await endpoint.asked(5)
        endpoint.answer()
    done = await running
    assert (endpoint.most, endpoint.prompts) == (3, ["0", "1", "2", "3", "4"])
    assert done.samples == ended
    assert [sample.error for sample in ended].count("timeout") == 1
    assert set(endpoint.due) == {7.0}


async def test_a_closed_loop_begins_no_call_after_its_time(endpoint: Endpoint) -> None:
    now = [0.0]
    drive = LoadDriver(made("http://h", "--concurrency", "2"), lambda: now[0], lambda _: None)
    running = asyncio.create_task(drive.run(endpoint.call, texts(), Random("1"), None, 10.0))
    await endpoint.asked(2)
    now[0] = 9.0
    endpoint.answer()
    await endpoint.asked(3)
    now[0] = 11.0
    endpoint.answer()
    endpoint.answer()
    done = await running
    assert (len(done.samples), done.seconds) == (3, 11.0)


async def test_an_open_loop_waits_for_no_answer_and_times_calls_from_when_they_were_due(
    endpoint: Endpoint,
) -> None:
    # The clock stands far ahead of every arrival: all are late, and none of them may say so.
    times = iter([0.0, 0.0, *[1000.0] * 100])
    drive = LoadDriver(made("http://h", "--rate", "10"), lambda: next(times), lambda _: None)
    running = asyncio.create_task(drive.run(endpoint.call, texts(), Random("1"), 20, None))
    await endpoint.asked(20)
    assert endpoint.most == 20
    assert endpoint.due == sorted(endpoint.due)
    assert endpoint.due[0] == 0.0
    assert 0.5 < endpoint.due[-1] < 6
    while endpoint.waiting:
        endpoint.answer()
    assert len((await running).samples) == 20


async def test_an_open_loop_ends_with_its_time(endpoint: Endpoint) -> None:
    drive = LoadDriver(made("http://h", "--rate", "10"), lambda: 0.0 if not endpoint.due else 99.0, lambda _: None)
    running = asyncio.create_task(drive.run(endpoint.call, texts(), Random("1"), None, 2.0))
    async with asyncio.timeout(5):
        while not running.done():
            if endpoint.waiting:
                endpoint.answer()
            await asyncio.sleep(0)
    assert max(endpoint.due) < 2.0
    assert len(running.result().samples) == len(endpoint.due) > 5


class TickingLoop(VirtualTimeLoop):
    """Virtual time that passes at each look at it, as real time does: a limiter waits for its last bit."""

    def time(self) -> float:
        self.now += 1e-7
        return self.now


def ticking(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, on a ticking loop."""

    @functools.wraps(test)
    def runs(**arguments: Any) -> None:
        with asyncio.Runner(loop_factory=TickingLoop) as runner:
            runner.run(test(**arguments))

    return runs


@ticking
async def test_constant_arrivals_are_evenly_spaced_and_make_up_for_a_late_timer() -> None:
    loop, started = asyncio.get_running_loop(), []
    start = loop.time()

    async def call(prompt: str, due: float) -> TimedCall:
        started.append((due - start, loop.time() - start))
        if prompt == "10":
            loop.now += 0.04  # something else has held up the loop
        return TimedCall(due, end=loop.time())

    drive = LoadDriver(made("http://h", "--rate", "50", "--arrivals", "constant"), loop.time, lambda _: None)
    result = await drive.run(call, texts(), Random("1"), 40, None)
    assert len(result.samples) == 40
    assert [due for due, _ in started] == pytest.approx([number / 50 for number in range(40)], abs=1e-3)
    lateness = [at - due for due, at in started]
    assert max(lateness) < 0.05
    assert max(lateness[:11]) == pytest.approx(0.0, abs=1e-3)
    assert lateness[-1] == pytest.approx(0.0, abs=1e-3)


@ticking
async def test_constant_arrivals_do_not_wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    limiters: list[AsyncLimiter] = []

    class Recorded(AsyncLimiter):
        def __init__(self, max_rate: float, time_period: float) -> None:
            super().__init__(max_rate, time_period)
            limiters.append(self)

    monkeypatch.setattr("gateway.cli.bench.driver.AsyncLimiter", Recorded)
    loop = asyncio.get_running_loop()
    at_once = most = 0

    async def call(prompt: str, due: float) -> TimedCall:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(1.0)
        at_once -= 1
        return TimedCall(due, end=loop.time())

    for words, made_limiters in (["--arrivals", "constant"], 1), ([], 1):
        drive = LoadDriver(made("http://h", "--rate", "10", *words), loop.time, lambda _: None)
        await drive.run(call, texts(), Random("1"), 30, None)
        assert len(limiters) == made_limiters  # aiolimiter paces the constant arrivals, and only those
        assert most >= 9


@pytest.mark.parametrize("words", [["--concurrency", "4"], ["--rate", "1000"]])
async def test_stop_cuts_off_what_is_under_way(endpoint: Endpoint, words: list[str]) -> None:
    drive = LoadDriver(made("http://h", *words), asyncio.get_running_loop().time, lambda _: None)
    running = asyncio.create_task(drive.run(endpoint.call, texts(), Random("1"), 100, None))
    await endpoint.asked(4)
    endpoint.answer()
    await endpoint.asked(5)
    drive.stop()
    done: Run = await running
    assert [sample.error for sample in done.samples] == [""]
    assert all(answer.cancelled() for answer in endpoint.waiting)
    assert (drive.over, drive.interrupted, drive.all_failed) == (True, True, False)


@pytest.mark.parametrize(("good", "calls"), [(0, 20), (1, 60)])
async def test_it_gives_up_when_the_first_20_have_all_failed(good: int, calls: int) -> None:
    made_so_far = count()

    async def call(prompt: str, due: float) -> TimedCall:
        return TimedCall(due, error="" if next(made_so_far) < good else "cannot connect")

    drive = LoadDriver(made("http://h", "--concurrency", "1"), lambda: 0.0, lambda _: None)
    done = await drive.run(call, texts(), Random("1"), 60, None)
    assert drive.all_failed == (good == 0)
    assert len(done.samples) == calls
