"""The whole configuration as frozen structs; field names, defaults and units are the documented ones.

Durations are float seconds, sizes int bytes, money int nano-dollars. The annotations are the schema:
`read.py` walks them, and each scalar type of `scalars.py` carries the parser of its text.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal

from gateway.config.complexity import CascadeConfig, ComplexityConfig, ShadowConfig
from gateway.config.engine_fields import EngineField
from gateway.config.scalars import (
    Amount,
    ApiKey,
    BaseUrl,
    Bytes,
    Count,
    Digest,
    Flag,
    Fraction,
    HeaderName,
    HeaderText,
    Heartbeat,
    Host,
    KeyText,
    Name,
    Origin,
    Path,
    PositiveSeconds,
    Prefix,
    RedisUrl,
    Seconds,
    TcpPort,
    Timezone,
    WeightScalar,
    WholeNumber,
    Workers,
)
from gateway.config.scalars import Section as Section

UpstreamKind = Literal["openai", "vllm", "sglang", "llamacpp"]
TransportName = Literal["httptools", "aiohttp"]
PriorityName = Literal["interactive", "batch"]
Capability = Literal["tools", "vision", "json_schema", "audio"]
Strategy = Literal["priority", "cheapest", "weighted", "least_loaded", "complexity"]
OnOverflow = Literal["error", "fallback", "drop_oldest", "middle_out"]

KIB = 1024
MIB = 1024 * KIB


class DrainConfig(Section, frozen=True, kw_only=True):
    """Shutdown: seconds before the port closes, then seconds that open calls may still take."""

    delay: Seconds = 0.0
    timeout: Seconds = 45.0


class ServerConfig(Section, frozen=True, kw_only=True):
    """The main port. `heartbeat` None means off."""

    host: Host = "127.0.0.1"
    port: TcpPort = 8080
    workers: Workers = 1
    max_body: Bytes = 32 * MIB
    max_body_memory: Bytes = 1024 * MIB
    body_timeout: PositiveSeconds = 30.0
    keepalive_timeout: PositiveSeconds = 75.0
    max_queue: WholeNumber = 1024
    heartbeat: Heartbeat = 15.0
    cors_origins: tuple[Origin, ...] = ()
    timezone: Timezone = "UTC"
    drain: DrainConfig = DrainConfig()


class AdminConfig(Section, frozen=True, kw_only=True):
    """The admin port; port 0 takes a free one."""

    host: Host = "127.0.0.1"
    port: TcpPort = 9464


class RedisConfig(Section, frozen=True, kw_only=True):
    """Shared state. The whole address is secret, for it may hold a password."""

    url: RedisUrl
    timeout: PositiveSeconds = 0.02
    prefix: Prefix = "sluice"
    on_failure: Literal["local", "open", "closed"] = "local"


class LimitsConfig(Section, frozen=True, kw_only=True):
    """What one key may use; None is no limit. `usd_per_day` is in nano-dollars."""

    rpm: Count | None = None
    tpm: Count | None = None
    concurrency: Count | None = None
    usd_per_day: Amount | None = None


class KeyConfig(Section, frozen=True, kw_only=True):
    """A client's key: exactly one of `key` and `key_sha256` (lower-case hex) is set."""

    name: Name
    key: KeyText | None = None
    key_sha256: Digest | None = None
    models: tuple[Name, ...] = ("*",)
    priority: PriorityName = "interactive"
    limits: LimitsConfig = LimitsConfig()
    engine_fields: tuple[EngineField, ...] = ()

    def digest(self) -> bytes:
        """SHA-256 of the key; what a presented key is looked up by."""
        if self.key is not None:
            return hashlib.sha256(self.key.reveal().encode()).digest()
        return bytes.fromhex(self.key_sha256.reveal() if self.key_sha256 is not None else "")


class RateConfig(Section, frozen=True, kw_only=True):
    """What an upstream allows us, per minute; None is no limit."""

    rpm: Count | None = None
    tpm: Count | None = None


class TimeoutsConfig(Section, frozen=True, kw_only=True):
    """Seconds. `first_byte` None is 120 for streams and `total` for the rest."""

    connect: PositiveSeconds = 2.0
    first_byte: PositiveSeconds | None = None
    idle: PositiveSeconds = 60.0
    total: PositiveSeconds = 600.0


class BreakerConfig(Section, frozen=True, kw_only=True):
    """Failures in a row that open the breaker, and seconds that it stays open, first and at most."""

    failures: Count = 5
    open_for: PositiveSeconds = 5.0
    max_open_for: PositiveSeconds = 60.0


class UpstreamConfig(Section, frozen=True, kw_only=True):
    """A server that answers calls. Every header value is a Secret, for many are credentials."""

    name: str
    base_url: BaseUrl
    kind: UpstreamKind = "openai"
    api_key: ApiKey | None = None
    headers: Mapping[HeaderName, HeaderText] = {}
    forward_headers: tuple[HeaderName, ...] = ()
    max_concurrency: Count = 64
    max_inputs: Count = 2048
    rate: RateConfig = RateConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    breaker: BreakerConfig = BreakerConfig()
    transport: TransportName = "httptools"
    gpu_hour_usd: Amount | None = None
    cache_salt: Literal["tenant"] | None = None


class PriceConfig(Section, frozen=True, kw_only=True):
    """Nano-dollars per million tokens. What is None costs as `input`, a long write as a write."""

    input: Amount
    output: Amount
    cached_input: Amount | None = None
    cache_write: Amount | None = None
    cache_write_long: Amount | None = None


class CandidateConfig(Section, frozen=True, kw_only=True):
    """One way to serve a model. `model` is the name sent upstream, by default the public one."""

    upstream: Name
    model: Name
    price: PriceConfig | None = None
    context_window: Count | None = None
    max_output: Count | None = None
    capabilities: frozenset[Capability] | None = None
    weight: WeightScalar = 1


class BaselinePriceConfig(Section, frozen=True, kw_only=True):
    """Nano-dollars per million tokens. No cache of a provider's stands behind it."""

    input: Amount
    output: Amount


class BaselineConfig(Section, frozen=True, kw_only=True):
    """A price that calls are compared with."""

    price: BaselinePriceConfig


class BatchingConfig(Section, frozen=True, kw_only=True):
    """How calls are gathered and merged."""

    policy: Literal["eager", "window", "off"] = "eager"
    max_size: Count = 32
    max_tokens: Count = 16384
    max_wait: Seconds = 0.05
    max_inflight: Count = 2
    merge_max_output: WholeNumber = 64
    merge_chat: Literal["auto", "off"] = "auto"


class CacheConfig(Section, frozen=True, kw_only=True):
    """Whether, where and how long answers are kept."""

    enabled: Flag = False
    ttl: PositiveSeconds = 3600.0
    max_bytes: Bytes = 256 * MIB
    store: Literal["memory", "redis"] = "memory"


class ModelConfig(Section, frozen=True, kw_only=True):
    """A public model. `batching` and `cache` are the top sections with this model's overrides in them.

    `baseline` names a public model, or a price.
    """

    name: str
    candidates: tuple[CandidateConfig, ...]
    route: Strategy = "priority"
    complexity: ComplexityConfig = ComplexityConfig()
    cascade: CascadeConfig = CascadeConfig()
    shadow: ShadowConfig = ShadowConfig()
    baseline: Name | BaselineConfig | None = None
    spill_after: Seconds | None = None
    fallbacks: tuple[Name, ...] = ()
    on_overflow: OnOverflow = "error"
    batching: BatchingConfig = BatchingConfig()
    cache: CacheConfig = CacheConfig()


class RetryConfig(Section, frozen=True, kw_only=True):
    """Calls to the candidates of a model, the share of extra calls, the bounds of the pause in seconds."""

    attempts: Count = 2
    budget: Fraction = 0.1
    backoff_base: Seconds = 0.05
    backoff_max: Seconds = 2.0


class UsageConfig(Section, frozen=True, kw_only=True):
    """Where spending is kept."""

    store: Literal["sqlite", "redis", "off"] = "sqlite"
    path: Path = "./sluice-usage.db"


class LogConfig(Section, frozen=True, kw_only=True):
    """How much is logged and in which shape."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"


class TracesConfig(Section, frozen=True, kw_only=True):
    """Whether calls are told to OpenTelemetry, and the share of those that no client traces itself."""

    enabled: Flag = False
    sample: Fraction = 1.0


class Config(Section, frozen=True, kw_only=True):
    """The effective configuration."""

    server: ServerConfig = ServerConfig()
    admin: AdminConfig = AdminConfig()
    redis: RedisConfig | None = None
    keys: tuple[KeyConfig, ...] = ()
    upstreams: Mapping[str, UpstreamConfig]
    models: Mapping[str, ModelConfig]
    retry: RetryConfig = RetryConfig()
    batching: BatchingConfig = BatchingConfig()
    cache: CacheConfig = CacheConfig()
    usage: UsageConfig = UsageConfig()
    log: LogConfig = LogConfig()
    traces: TracesConfig = TracesConfig()
