"""Every default is the documented one, and every documented field exists."""

import hashlib

import pytest
from sample_configs import FULL, MINIMAL

from gateway.config.model import LimitsConfig, PriceConfig, RateConfig
from gateway.config.show import as_yaml, effective

BATCHING = {
    "policy": "eager",
    "max_size": 32,
    "max_tokens": 16384,
    "max_wait": "50ms",
    "max_inflight": 2,
    "merge_max_output": 64,
    "merge_chat": "auto",
}
CACHE = {"enabled": False, "ttl": "3600s", "max_bytes": "256MiB", "store": "memory"}
DEFAULTS = {
    "server": {
        "host": "127.0.0.1",
        "port": 8080,
        "workers": 1,
        "max_body": "32MiB",
        "max_answer": None,
        "max_body_memory": "1GiB",
        "body_timeout": "30s",
        "keepalive_timeout": "75s",
        "max_queue": 1024,
        "heartbeat": "15s",
        "cors_origins": [],
        "timezone": "UTC",
        "learned_path": None,
        "metrics_dir": None,
        "drain": {"delay": "0s", "timeout": "45s"},
    },
    "admin": {
        "host": "127.0.0.1",
        "port": 9464,
        "keys": [],
        "trusted_header": None,
        "trusted_proxies": [],
    },
    "redis": None,
    "keys_file": None,
    "keys": [],
    "auth": {"jwt": []},
    "upstreams": {
        "local": {
            "base_url": "http://127.0.0.1:8000/v1",
            "kind": "openai",
            "serves": None,
            "api_key": None,
            "headers": {},
            "forward_headers": [],
            "max_concurrency": None,
            "max_inputs": 2048,
            "rate": {"rpm": None, "tpm": None},
            "timeouts": {"connect": "2s", "first_byte": None, "idle": "60s", "total": "600s"},
            "breaker": {"failures": 5, "open_for": "5s", "max_open_for": "60s"},
            "transport": "httptools",
            "ca_file": None,
            "ask_usage": True,
            "gpu_hour_usd": None,
            "cache_salt": None,
        }
    },
    "models": {
        "small": {
            "candidates": [
                {
                    "upstream": "local",
                    "model": "small",
                    "price": None,
                    "context_window": None,
                    "max_output": None,
                    "capabilities": None,
                    "weight": 1,
                }
            ],
            "aliases": [],
            "route": "priority",
            "complexity": {
                "strong_share": 0.3,
                "usd_per_day": None,
                "max_strong_share_per_key": None,
                "weights": None,
            },
            "cascade": {
                "enabled": False,
                "checks": ["finish", "empty", "refusal", "json", "arithmetic", "logprob"],
                "min_logprob": None,
            },
            "shadow": {"share": 0, "max_per_minute": None, "path": "./sluice-shadow.jsonl"},
            "baseline": None,
            "spill_after": None,
            "fallbacks": [],
            "on_overflow": "error",
            "batching": BATCHING,
            "cache": CACHE,
        }
    },
    "inspector": {"calls": 1000, "max_bytes": "64MiB", "bodies": False},
    "retry": {"attempts": 2, "budget": 0.1, "backoff_base": "50ms", "backoff_max": "2s"},
    "batching": BATCHING,
    "cache": CACHE,
    "usage": {"store": "sqlite", "path": "./sluice-usage.db"},
    "batches": {
        "enabled": False,
        "path": "./sluice-batches",
        "url": None,
        "max_file": "200MiB",
        "max_lines": 50_000,
        "keep": "2592000s",
        "max_disk": "20GiB",
        "hours": None,
    },
    "log": {"level": "info", "format": "auto"},
    "traces": {"enabled": False, "sample": 1.0},
}


def test_a_config_of_four_lines_has_the_documented_defaults(good):
    assert len(MINIMAL.splitlines()) == 4
    assert effective(good(MINIMAL).config) == DEFAULTS


def test_values_are_in_base_units(good):
    config = good(MINIMAL).config
    server, upstream = config.server, config.upstreams["local"]
    assert (server.max_body, server.body_timeout, server.heartbeat) == (32 * 1024 * 1024, 30.0, 15.0)
    assert (upstream.timeouts.connect, upstream.timeouts.first_byte, upstream.name) == (2.0, None, "local")
    assert (config.batching.max_wait, config.cache.ttl, config.retry.backoff_base) == (0.05, 3600.0, 0.05)
    assert config.models["small"].name == "small"


def test_defaults_of_optional_sections(good):
    config = good(MINIMAL + "redis: {url: 'redis://127.0.0.1:6379/0'}\nkeys: [{name: a, key: abcdefgh}]\n").config
    assert (config.redis.timeout, config.redis.prefix, config.redis.on_failure) == (0.02, "sluice", "local")
    (key,) = config.keys
    assert (key.models, key.priority, key.limits) == (("*",), "interactive", LimitsConfig())
    assert LimitsConfig() == LimitsConfig(rpm=None, tpm=None, concurrency=None, usd_per_day=None)


def test_every_field_can_be_set(good):
    config = good(FULL).config
    assert config.server.heartbeat is None
    assert config.server.cors_origins == ("*", "https://app.example.com")
    assert config.keys[0].limits == LimitsConfig(rpm=1, tpm=2, concurrency=3, usd_per_day=1_500_000_000)
    assert config.keys[0].digest().hex().startswith("2c26b46b")
    upstream = config.upstreams["up"]
    assert upstream.rate == RateConfig(rpm=3, tpm=4)
    assert upstream.headers["x-title"].reveal() == "b"
    candidate = config.models["s"].candidates[0]
    assert candidate.price == PriceConfig(
        input=280_000_000,
        output=420_000_000,
        cached_input=28_000_000,
        cache_write=350_000_000,
        cache_write_long=560_000_000,
    )
    assert candidate.capabilities == {"tools", "vision"}
    assert (config.batching.policy, config.batching.merge_chat, config.usage.store) == ("off", "off", "off")
    assert config.cache.enabled is True


def test_overrides_of_a_model_start_from_the_sections(good):
    config = good(FULL).config
    assert config.models["s"].batching.max_size == 8
    assert config.models["s"].batching.max_tokens == 5
    assert config.models["s"].cache.ttl == 60.0
    assert config.models["t"].batching == config.batching
    assert config.models["t"].candidates[0].model == "t"


def test_what_is_shown_loads_to_the_same(good):
    without_secrets = FULL.replace(FULL[FULL.index("keys:") : FULL.index("upstreams:")], "")
    first = good(without_secrets.replace("    api_key: k\n", "")).config
    assert good(as_yaml(first)).config == first


def test_digest_of_a_key_is_its_sha256(good):
    config = good(MINIMAL + "keys: [{name: a, key: foofoofoo}]\n").config
    assert config.keys[0].digest() == hashlib.sha256(b"foofoofoo").digest()


def test_configured_holds_what_was_written(good):
    loaded = good(MINIMAL.replace("}]}", ", weight: 2}]}") + "server: {}\nredis: null\nlog: {level: debug}\n")
    assert loaded.configured == {
        "upstreams",
        "upstreams.base_url",
        "models",
        "models.candidates",
        "models.candidates.upstream",
        "models.candidates.weight",
        "log",
        "log.level",
    }


@pytest.mark.parametrize("port", [0, 9999])
def test_the_command_line_overrides_the_server_section(load_text, port):
    loaded = load_text(MINIMAL + "server: {port: 1, workers: 3}\n", server={"port": port})
    assert (loaded.config.server.port, loaded.config.server.workers) == (port, 3)


def test_an_override_is_checked_too(load_text):
    loaded = load_text(MINIMAL, server={"host": "0.0.0.0"})
    assert [problem.path for problem in loaded.problems] == ["server.host"]
