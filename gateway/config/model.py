"""The configuration as frozen structs, with the documented names and defaults.

Durations are float seconds, sizes int bytes, amounts of money int nano-dollars. The annotations are the
schema: `reader.py` and `json_schema.py` follow them, and each scalar type of `scalars.py` parses its text.
"""

import hashlib
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

from gateway.config.complexity import CascadeConfig, ComplexityConfig, ShadowConfig
from gateway.config.engine_fields import EngineField
from gateway.config.scalars import (
    Amount,
    ApiKey,
    BaseUrl,
    Bytes,
    Concurrency,
    Count,
    Digest,
    Flag,
    HeaderName,
    HeaderText,
    Heartbeat,
    Host,
    Hours,
    JwksUrl,
    KeyText,
    Name,
    NetworkText,
    Origin,
    Path,
    PositiveSeconds,
    Prefix,
    Ratio,
    RedisPassword,
    RedisUrl,
    Seconds,
    ShareScalar,
    StorageUrl,
    TcpPort,
    Timezone,
    TokenPrice,
    WeightScalar,
    WholeNumber,
    Workers,
)
from gateway.config.scalars import Section as Section
from gateway.core.units import Secret

UpstreamKind = Literal["openai", "anthropic", "vllm", "sglang", "llamacpp"]
PROVIDERS = ("openai", "anthropic")
"""Kinds that are no engine of one's own: what they cost is looked up, and nothing steers them."""

EndpointName = Literal[
    "chat",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "rerank",
    "score",
    "pooling",
    "classify",
    "tokenize",
    "detokenize",
    "moderations",
    "images",
    "audio",
]
TransportName = Literal["httptools", "aiohttp"]
PriorityName = Literal["interactive", "batch"]
Capability = Literal["tools", "vision", "json_schema", "audio"]
Strategy = Literal["priority", "cheapest", "weighted", "least_loaded", "complexity"]
OnOverflow = Literal["error", "fallback", "drop_oldest", "middle_out"]

KIB = 1024
MIB = 1024 * KIB


class DrainConfig(Section, frozen=True, kw_only=True):
    """Shutdown: seconds until the port closes, then seconds for open requests to finish."""

    delay: Seconds = 0.0
    timeout: Seconds = 45.0


class ServerConfig(Section, frozen=True, kw_only=True):
    """The main port. A `heartbeat` of None is off, `learned_path` None is beside the ledger.

    `metrics_dir` None is the temporary folder.
    """

    host: Host = "127.0.0.1"
    port: TcpPort = 8080
    workers: Workers = 1
    max_body: Bytes = 32 * MIB
    max_answer: Bytes | None = None
    max_body_memory: Bytes = 1024 * MIB
    body_timeout: PositiveSeconds = 30.0
    keepalive_timeout: PositiveSeconds = 75.0
    max_queue: WholeNumber = 1024
    heartbeat: Heartbeat = 15.0
    cors_origins: tuple[Origin, ...] = ()
    timezone: Timezone = "UTC"
    learned_path: Path | None = None
    metrics_dir: Path | None = None
    drain: DrainConfig = DrainConfig()


class AdminConfig(Section, frozen=True, kw_only=True):
    """The admin port; port 0 takes a free one. The proxies are networks, such as `10.0.0.7/32`."""

    host: Host = "127.0.0.1"
    port: TcpPort = 9464
    keys: tuple[KeyText, ...] = ()
    trusted_header: HeaderName | None = None
    trusted_proxies: tuple[NetworkText, ...] = ()


class InspectorConfig(Section, frozen=True, kw_only=True):
    """What is kept of finished requests, in memory: at most so many, of together at most so many bytes."""

    calls: WholeNumber = 1000
    max_bytes: Bytes = 64 * MIB
    bodies: Flag = False


class RedisConfig(Section, frozen=True, kw_only=True):
    """Redis, for shared state. The whole address is secret because it may contain a password."""

    url: RedisUrl
    password: RedisPassword | None = None
    timeout: PositiveSeconds = 0.02
    prefix: Prefix = "sluice"
    on_failure: Literal["local", "open", "closed"] = "local"

    def address(self) -> Secret:
        """The URL to connect to, with the password inside it."""
        if self.password is None:
            return self.url
        scheme, _, rest = self.url.reveal().partition("://")
        login, _, tail = rest.rpartition("@")
        user = login.removesuffix(":")
        return Secret(f"{scheme}://{user}:{quote(self.password.reveal(), safe='')}@{tail}")


class LimitsConfig(Section, frozen=True, kw_only=True):
    """The limits of one key; None is no limit. `usd_per_day` is in nano-dollars."""

    rpm: Count | None = None
    tpm: Count | None = None
    concurrency: Count | None = None
    usd_per_day: Amount | None = None


class KeyConfig(Section, frozen=True, kw_only=True):
    """A client's key; either `key` or `key_sha256` (lower-case hex) is set, never both."""

    name: Name
    key: KeyText | None = None
    key_sha256: Digest | None = None
    models: tuple[Name, ...] = ("*",)
    priority: PriorityName = "interactive"
    limits: LimitsConfig = LimitsConfig()
    engine_fields: tuple[EngineField, ...] = ()
    keep_bodies: Flag = True

    def digest(self) -> bytes:
        """The SHA-256 of the key, by which authentication finds it."""
        if self.key is not None:
            return hashlib.sha256(self.key.reveal().encode()).digest()
        return bytes.fromhex(self.key_sha256.reveal() if self.key_sha256 is not None else "")


JwtAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures that only the provider can make; a secret shared with it (HS256) is not offered."""


class JwtConfig(Section, frozen=True, kw_only=True):
    """An identity provider whose tokens are accepted; either `jwks_url` or `jwks_file` is set.

    `map` leads from a group to the name of a key. A `key_from` of None makes each group one caller.
    """

    name: Name = "sso"
    issuer: Name
    audience: Name
    jwks_url: JwksUrl | None = None
    jwks_file: Path | None = None
    ca_file: Path | None = None
    algorithms: tuple[JwtAlgorithm, ...] = ("RS256", "ES256")
    key_from: Name | None = "sub"
    groups_from: Name = "groups"
    map: Mapping[Name, Name]


class AuthConfig(Section, frozen=True, kw_only=True):
    """Further ways to authenticate, beside `keys`."""

    jwt: tuple[JwtConfig, ...] = ()


class RateConfig(Section, frozen=True, kw_only=True):
    """The rate limit that an upstream sets for the gateway, per minute; None is no limit."""

    rpm: Count | None = None
    tpm: Count | None = None


class TimeoutsConfig(Section, frozen=True, kw_only=True):
    """Timeouts in seconds. A `first_byte` of None is 120 for streams and `total` for other calls."""

    connect: PositiveSeconds = 2.0
    first_byte: PositiveSeconds | None = None
    idle: PositiveSeconds = 60.0
    total: PositiveSeconds = 600.0


class BreakerConfig(Section, frozen=True, kw_only=True):
    """Consecutive failures that open the circuit breaker, and for how many seconds: at first and at most."""

    failures: Count = 5
    open_for: PositiveSeconds = 5.0
    max_open_for: PositiveSeconds = 60.0


class UpstreamConfig(Section, frozen=True, kw_only=True):
    """A server that answers requests. Every header value is a Secret because many are credentials."""

    name: str
    base_url: BaseUrl
    kind: UpstreamKind = "openai"
    api_key: ApiKey | None = None
    serves: frozenset[EndpointName] | None = None
    headers: Mapping[HeaderName, HeaderText] = {}
    forward_headers: tuple[HeaderName, ...] = ()
    max_concurrency: Concurrency | None = None
    max_inputs: Count = 2048
    rate: RateConfig = RateConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    breaker: BreakerConfig = BreakerConfig()
    transport: TransportName = "httptools"
    ca_file: Path | None = None
    ask_usage: Flag = True
    gpu_hour_usd: Amount | None = None
    cache_salt: Literal["tenant"] | None = None

    @property
    def slots(self) -> int | None:
        """The limit of calls in flight; None: it is found while the gateway runs."""
        if self.max_concurrency is None:
            return None if self.kind in ("vllm", "sglang", "llamacpp") else 64
        return None if self.max_concurrency == "auto" else self.max_concurrency


class PriceConfig(Section, frozen=True, kw_only=True):
    """Nano-dollars per million tokens. None costs as `input`; for `cache_write_long`, as `cache_write`."""

    input: TokenPrice
    output: TokenPrice
    cached_input: TokenPrice | None = None
    cache_write: TokenPrice | None = None
    cache_write_long: TokenPrice | None = None


class CandidateConfig(Section, frozen=True, kw_only=True):
    """An upstream that can serve a model. `model` is the name sent there, by default the public name."""

    upstream: Name
    model: Name
    price: PriceConfig | None = None
    context_window: Count | None = None
    max_output: Count | None = None
    capabilities: frozenset[Capability] | None = None
    weight: WeightScalar = 1


class BaselinePriceConfig(Section, frozen=True, kw_only=True):
    """Nano-dollars per million tokens, without the discount of a provider's cache."""

    input: TokenPrice
    output: TokenPrice


class BaselineConfig(Section, frozen=True, kw_only=True):
    """A price that requests are compared with in the savings report."""

    price: BaselinePriceConfig


class BatchingConfig(Section, frozen=True, kw_only=True):
    """How requests are gathered into batches and merged."""

    policy: Literal["eager", "window", "off"] = "eager"
    max_size: Count = 32
    max_tokens: Count = 16384
    max_wait: Seconds = 0.05
    max_inflight: Count = 2
    merge_max_output: WholeNumber = 64
    merge_chat: Literal["auto", "off"] = "auto"


class CacheConfig(Section, frozen=True, kw_only=True):
    """Whether, where and for how long answers are cached."""

    enabled: Flag = False
    ttl: PositiveSeconds = 3600.0
    max_bytes: Bytes = 256 * MIB
    store: Literal["memory", "redis"] = "memory"


class ModelConfig(Section, frozen=True, kw_only=True):
    """A public model. `batching` and `cache` are the top-level sections with this model's overrides applied.

    `baseline` names a public model or gives a price.
    """

    name: str
    candidates: tuple[CandidateConfig, ...]
    aliases: tuple[Name, ...] = ()
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
    """Attempts per model, the ratio of the retry budget, and the bounds of the back-off in seconds."""

    attempts: Count = 2
    budget: Ratio = 0.1
    backoff_base: Seconds = 0.05
    backoff_max: Seconds = 2.0


class UsageConfig(Section, frozen=True, kw_only=True):
    """Where usage and cost are recorded."""

    store: Literal["sqlite", "redis", "off"] = "sqlite"
    path: Path = "./sluice-usage.db"


class BatchesConfig(Section, frozen=True, kw_only=True):
    """Files and batches. `url` None: one machine, with everything below `path`."""

    enabled: Flag = False
    path: Path = "./sluice-batches"
    url: StorageUrl | None = None
    max_file: Bytes = 200 * MIB
    max_lines: Count = 50_000
    keep: PositiveSeconds = 30 * 86400.0
    max_disk: Bytes = 20 * 1024 * MIB
    hours: Hours | None = None


class LogConfig(Section, frozen=True, kw_only=True):
    """How much is logged, and in which format."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"


class TracesConfig(Section, frozen=True, kw_only=True):
    """Whether spans are exported, and the sampling ratio of requests without a `traceparent`."""

    enabled: Flag = False
    sample: ShareScalar = 1.0


class Config(Section, frozen=True, kw_only=True):
    """The effective configuration."""

    server: ServerConfig = ServerConfig()
    admin: AdminConfig = AdminConfig()
    inspector: InspectorConfig = InspectorConfig()
    redis: RedisConfig | None = None
    keys_file: Path | None = None
    keys: tuple[KeyConfig, ...] = ()
    auth: AuthConfig = AuthConfig()
    upstreams: Mapping[str, UpstreamConfig]
    models: Mapping[str, ModelConfig]
    retry: RetryConfig = RetryConfig()
    batching: BatchingConfig = BatchingConfig()
    cache: CacheConfig = CacheConfig()
    usage: UsageConfig = UsageConfig()
    batches: BatchesConfig = BatchesConfig()
    log: LogConfig = LogConfig()
    traces: TracesConfig = TracesConfig()
