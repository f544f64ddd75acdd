"""Where prices come from: config, catalogue, the kind of upstream; when they change; `sluice prices`."""

import io
import json
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doubles.settings import settings
from genai_prices import types
from genai_prices.data import providers
from kit.calls import make_call

from gateway.assembly.upstreams import routes
from gateway.cli import prices
from gateway.config.load import load
from gateway.config.model import Config
from gateway.core.budget_calendar import Calendar
from gateway.core.caller import KeyLimits
from gateway.core.errors import MODEL_NOT_ALLOWED
from gateway.core.tokens import Price, Tier, TokenUsage
from gateway.limits.key_limit_gate import KeyLimitGate
from gateway.pricing.catalogue import Catalogue, Listing, may_be_listed
from gateway.pricing.resolver import Pricing
from gateway.telemetry.metrics import Metrics
from gateway.usage.cost import FREE, cost

USD = 1_000_000_000
OPENAI = "https://api.openai.com/v1"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()


def config(tmp_path: Path, base_url: str = OPENAI, **candidate: Any) -> Config:
    """One model at this address, as candidate `gpt-4o` by default."""
    kind = candidate.pop("kind", "openai")
    sections = settings(base_url, upstream={"kind": kind})
    sections["models"] = {"m": {"candidates": [{"upstream": "local", "model": "gpt-4o", **candidate}]}}
    file = tmp_path / "sluice.yaml"
    file.write_text(json.dumps(sections), encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None, loaded.problems
    return loaded.config


def known(config: Config, now: float = NOON) -> tuple[Price | None, str]:
    found = Pricing(lambda: now).resolve(config.models["m"].candidates[0], config.upstreams["local"])
    return found.price, found.source


def test_the_config_wins_and_zero_is_a_price(tmp_path: Path) -> None:
    free = {"input": 0, "output": 0}
    assert known(config(tmp_path, price=free)) == (Price(0, 0, 0), "config")
    some = {"input": 1, "output": 2}
    assert known(config(tmp_path, price=some)) == (Price(USD, 2 * USD, USD), "config")
    price, _ = known(config(tmp_path, price={**some, "cached_input": 0, "cache_write": 3, "cache_write_long": 4}))
    assert price == Price(USD, 2 * USD, 0, 3 * USD, 4 * USD)


def test_a_known_provider_is_looked_up_by_the_upstream_model_name(tmp_path: Path) -> None:
    price, source = known(config(tmp_path))
    assert price is not None
    assert source.startswith("genai-prices ")
    assert (price.input, price.output, price.cached_input) == (2_500_000_000, 10 * USD, 1_250_000_000)
    assert known(config(tmp_path, model="no-such-model")) == (None, "unknown")


def test_anthropic_is_a_provider_and_no_engine(tmp_path: Path) -> None:
    paid = config(tmp_path, "https://api.anthropic.com/v1", kind="anthropic", model="claude-3-5-haiku-latest")
    price, source = known(paid)
    assert source.startswith("genai-prices ")
    assert price is not None
    assert (price.input, price.output) == (800_000_000, 4 * USD)
    assert known(config(tmp_path, "http://127.0.0.1:8000/v1", kind="anthropic")) == (None, "unknown")


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_a_self_hosted_engine_costs_nothing(tmp_path: Path, kind: str) -> None:
    assert known(config(tmp_path, "http://127.0.0.1:8000/v1", kind=kind)) == (FREE, "self-hosted")


@pytest.mark.parametrize(
    "base_url",
    [
        "http://127.0.0.1:8000/v1",
        "http://api.openai.com/v1",
        "https://api.openai.com:8443/v1",
        "https://api.openai.com.example.org/v1",
        "https://example.org/api.openai.com/v1",
        "https://example.org/x.googleapis.com/v1",
        "https://notapi.openai.com/v1",
        "https://10.0.0.7/v1",
        "https://localhost/v1",
    ],
)
def test_other_addresses_have_no_price(tmp_path: Path, base_url: str) -> None:
    for model in ("gpt-4o", "gemini-2.5-pro"):
        assert known(config(tmp_path, base_url, model=model)) == (None, "unknown")


@pytest.mark.parametrize(
    ("base_url", "model"),
    [
        ("https://api.deepseek.com", "deepseek-chat"),
        ("https://api.deepseek.com/v1", "deepseek-chat"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gemini-2.5-flash"),
        ("https://api.anthropic.com/v1", "claude-sonnet-4-5"),
        ("https://openrouter.ai/api/v1", "openai/gpt-4o"),
        ("https://api.mistral.ai/v1", "mistral-large-latest"),
        ("https://api.groq.com/openai/v1", "llama-3.3-70b-versatile"),
        ("https://myname.openai.azure.com/openai/v1", "gpt-4o"),
        ("https://API.openai.com/v1", "gpt-4o"),
    ],
)
def test_these_providers_are_known(base_url: str, model: str) -> None:
    listing = Catalogue().listed(base_url, model)
    assert listing is not None
    quote = listing.at(NOON)
    assert quote is not None
    assert quote.price.output > quote.price.input > 0


def test_every_price_of_the_catalogue_can_be_read() -> None:
    seen = 0
    for provider in providers:
        for model in provider.models:
            quote = Listing(model).at(NOON)
            if quote is not None:
                seen += 1
                assert quote.price.input >= 0
                assert [tier.above for tier in quote.price.tiers] == sorted({t.above for t in quote.price.tiers})
    assert seen > 1000


def test_the_catalogue_is_loaded_only_when_needed(tmp_path: Path) -> None:
    assert not may_be_listed("http://127.0.0.1:8000/v1")
    assert may_be_listed(OPENAI)
    file = tmp_path / "sluice.yaml"
    file.write_text(json.dumps(settings("http://127.0.0.1:8000/v1")), encoding="utf-8")
    code = (
        "import sys; from gateway.cli.main import main; main(['check', '--config', sys.argv[1]]); "
        "import gateway.assembly.gateway; assert 'genai_prices' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, capture_output=True)


def dollars(**prices: Any) -> types.ModelPrice:
    """A price of the catalogue, in USD for a million."""
    return types.ModelPrice(**{f"{name}_mtok": value for name, value in prices.items()})


def listing(*conditional: tuple[Any, types.ModelPrice]) -> Listing:
    made = [types.ConditionalPrice(constraint=when, prices=price) for when, price in conditional]
    return Listing(types.ModelInfo(id="m", match=types.ClauseEquals("m"), prices=made))


def test_a_tier_applies_to_the_whole_call() -> None:
    tiered = types.TieredPrices(Decimal("1.25"), [types.Tier(200_000, Decimal("2.5"))])
    quote = listing((None, dollars(input=tiered, output=Decimal(10)))).at(NOON)
    assert quote is not None
    above = Price(2_500_000_000, 10 * USD, 2_500_000_000)
    assert quote.price == Price(1_250_000_000, 10 * USD, 1_250_000_000, tiers=(Tier(200_000, above),))


def test_charges_other_than_tokens_are_named_or_make_the_price_unknown() -> None:
    searched = types.ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(2), web_searches_kcount=Decimal(9))
    quote = listing((None, searched)).at(NOON)
    assert quote is not None
    assert quote.excluded == ("web searches",)
    spoken = types.ModelPrice(input_mtok=Decimal(1), output_audio_mtok=Decimal(9))
    for unpriced in (spoken, types.ModelPrice(), types.ModelPrice(audio_hours=Decimal(1))):
        assert listing((None, unpriced)).at(NOON) is None
    embedded = listing((None, dollars(input=Decimal("0.02")))).at(NOON)
    assert embedded is not None
    assert (embedded.price.input, embedded.price.output) == (20_000_000, None)
    assert cost(TokenUsage(1_000_000), embedded.price) == 20_000_000
    assert cost(TokenUsage(1_000_000, 1), embedded.price) is None


def test_a_price_takes_effect_on_its_day_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = types.StartDateConstraint(date(2026, 12, 1))
    dated = listing(
        (None, dollars(input=Decimal(1), output=Decimal(2))),
        (change, dollars(input=Decimal(3), output=Decimal(4))),
    )
    monkeypatch.setattr(Catalogue, "listed", lambda self, base_url, model: dated)
    clock = [datetime(2026, 11, 30, 23, 59, 30, tzinfo=UTC).timestamp()]
    pricing = Pricing(lambda: clock[0])
    read = config(tmp_path)
    found = routes(read, lambda one, upstream: pricing.resolve(one, upstream).price)
    (candidate,) = found["m"].candidates
    assert pricing.watch(read, found)
    pricing.tick(0.0)
    assert candidate.price == Price(USD, 2 * USD, USD)
    assert dated.next_change(clock[0]) == "2026-12-01"
    clock[0] += 60
    pricing.tick(30.0)
    assert candidate.price == Price(USD, 2 * USD, USD), "looked at once a minute"
    pricing.tick(60.0)
    assert candidate.price == Price(3 * USD, 4 * USD, 3 * USD)
    assert dated.next_change(clock[0]) is None


def test_a_price_may_depend_on_the_hour() -> None:
    night = types.TimeOfDateConstraint(time(16, 30, tzinfo=UTC), time(0, 30, tzinfo=UTC))
    dated = listing(
        (None, dollars(input=Decimal(2), output=Decimal(2))),
        (night, dollars(input=Decimal(1), output=Decimal(1))),
    )
    day, late = dated.at(NOON), dated.at(NOON + 6 * 3600)
    assert day is not None
    assert late is not None
    assert (day.price.input, late.price.input) == (2 * USD, USD)
    assert dated.changes_within_a_day


def test_prices_of_the_config_are_not_watched(tmp_path: Path) -> None:
    read, pricing = config(tmp_path, price={"input": 1, "output": 1}), Pricing(lambda: NOON)
    assert not pricing.watch(read, routes(read, lambda one, upstream: pricing.resolve(one, upstream).price))


def rejected(read: Config) -> Any:
    """What a key with a budget hears."""
    pricing = Pricing(lambda: NOON)
    call = make_call()
    call.routing.route = routes(read, lambda one, upstream: pricing.resolve(one, upstream).price)["m"]
    limit = KeyLimitGate(lambda call: None, Calendar("UTC", 0.0, 0.0), Metrics())  # type: ignore[arg-type, return-value]
    return limit.unpriced(call, KeyLimits(usd_per_day=USD))


def test_a_budget_works_with_the_catalogue_and_rejects_unknown_prices(tmp_path: Path) -> None:
    assert rejected(config(tmp_path)) is None
    assert rejected(config(tmp_path, "http://127.0.0.1:1/v1", kind="vllm")) is None
    rejection = rejected(config(tmp_path, model="no-such-model"))
    assert rejection.kind is MODEL_NOT_ALLOWED
    assert "`models.m.candidates[0].price`" in rejection.message


def listed(tmp_path: Path, text: str, as_json: bool = False) -> tuple[int, str, str]:
    file = tmp_path / "sluice.yaml"
    file.write_text(text, encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    status = prices.run(file, as_json, out=out, err=err, environ={}, clock=lambda: NOON)
    return status, out.getvalue(), err.getvalue()


MANY = f"""
upstreams:
  openai: {{base_url: "{OPENAI}"}}
  google: {{base_url: "https://generativelanguage.googleapis.com/v1beta/openai"}}
  other: {{base_url: "http://127.0.0.1:9/v1"}}
  local: {{base_url: "http://127.0.0.1:8000/v1", kind: vllm, gpu_hour_usd: 2.5}}
models:
  a:
    candidates:
      - {{upstream: local, model: own}}
      - {{upstream: openai, model: gpt-4o}}
      - {{upstream: google, model: gemini-2.5-pro}}
      - {{upstream: other, model: "[red]x", price: {{input: 1, output: 2, cache_write: 1.5}}}}
      - {{upstream: other, model: mystery}}
"""


def test_the_command_lists_prices_their_sources_and_what_to_set(tmp_path: Path) -> None:
    status, out, err = listed(tmp_path, MANY)
    assert (status, err) == (0, "")
    lines = {line.split()[2]: line for line in out.splitlines() if line.startswith(" a ")}
    assert "self-hosted" in lines["own"]
    assert "\nlocal/own: 2.5 an hour;" in out
    assert lines["gpt-4o"].split()[3:6] == ["2.5", "10", "1.25"]
    assert "genai-prices " in lines["gpt-4o"]
    assert "gemini-2.5-pro: above 200000 input tokens 2.5 in, 15 out" in out
    assert lines["[red]x"].split()[3:8] == ["1", "2", "1", "1.5", "config"]
    assert lines["mystery"].count("unknown") == 5
    assert "models.a.candidates[4].price: the price of mystery at other is not known; set it" in out


def test_the_command_as_json(tmp_path: Path) -> None:
    status, out, _ = listed(tmp_path, MANY, as_json=True)
    rows = json.loads(out)
    assert (status, len(rows)) == (0, 5)
    assert rows[3] == {
        "model": "a",
        "upstream": "other",
        "model_sent": "[red]x",
        "source": "config",
        "usd_per_million_tokens": {
            "input": "1",
            "output": "2",
            "cached_input": "1",
            "cache_write": "1.5",
            "cache_write_long": "1.5",
        },
        "above": [],
        "gpu_hour_usd": None,
        "notes": [],
    }
    assert rows[4]["usd_per_million_tokens"] is None
    assert rows[2]["above"][0]["input_tokens"] == 200_000
    assert rows[0]["gpu_hour_usd"] == "2.5"


def test_the_command_refuses_a_broken_config(tmp_path: Path) -> None:
    status, out, err = listed(tmp_path, "models: {}")
    assert (status, out) == (2, "")
    assert "upstreams" in err
