"""What a token costs on a machine that is paid by the hour."""

import json

from gateway.usage.gpu_cost import Throughput, WorkDone, as_json

GPU_HOUR = 3_600_000_000  # 3.60 USD: a tenth of a cent a second


def dollars(done: WorkDone, *, waiting: bool = False) -> dict[str, str | None]:
    figures = json.loads(json.dumps(as_json(GPU_HOUR, done, waiting=waiting)))
    assert figures["gpu_hour_usd"] == "3.6"
    assert WorkDone(**figures["done"]) == done
    found: dict[str, str | None] = figures["usd_per_million_tokens"]
    return found


def test_the_hourly_price_is_divided_by_the_tokens_of_the_hour():
    machine = Throughput(100.0)
    machine.add(600_000, 110.0)
    machine.add(400_000, 190.0)
    # 100 s at 0.001 USD are 0.1 USD for a million tokens; a minute of 600,000 is 0.06 USD: 0.1 a million.
    found = dollars(machine.done(200.0))
    assert (found["since_start"], found["last_hour"]) == ("0.1", "0.1")
    assert found["best_minute"] == "0.1"


def test_the_last_hour_excludes_earlier_tokens():
    machine = Throughput(0.0)
    machine.add(1_000_000, 30.0)
    machine.add(500_000, 7200.0)
    done = machine.done(7200.0)
    assert (done.tokens, done.hour_tokens, done.best_minute) == (1_500_000, 500_000, 1_000_000)
    assert 3480 < done.hour_seconds <= 3600
    assert machine.done(20_000.0).hour_tokens == 0


def test_one_more_token_costs_nothing_while_no_call_waits():
    machine = Throughput(0.0)
    machine.add(60_000, 30.0)  # its best minute: 0.06 USD for 60,000
    assert dollars(machine.done(60.0))["next"] == "0"
    assert dollars(machine.done(60.0), waiting=True)["next"] == "1"


def test_an_idle_machine_has_no_token_price():
    assert set(dollars(Throughput(0.0).done(10.0), waiting=True).values()) == {None}


def test_several_processes_are_one_machine():
    both = WorkDone(100, 50.0, 80, 40.0, 10).combined(WorkDone(10, 60.0, 8, 45.0, 1))
    assert both == WorkDone(110, 60.0, 88, 45.0, 11)
    assert WorkDone().combined(both) == both
