"""The smallest config that runs, and one that sets every field."""

MINIMAL = """\
upstreams:
  local: {base_url: "http://127.0.0.1:8000/v1"}
models:
  small: {candidates: [{upstream: local}]}
"""

FULL = """\
server:
  {host: "::1", port: 0, workers: 2, max_body: 1MiB, max_answer: 2MiB, max_body_memory: 8MiB,
   body_timeout: 5,   keepalive_timeout: 1m, max_queue: 0, heartbeat: off,
   cors_origins: ["*", "https://app.example.com"], timezone: UTC,
   drain: {delay: 1s, timeout: 0}}
admin: {host: localhost, port: 0}
redis: {url: "redis://127.0.0.1/1", timeout: 10ms, prefix: p, on_failure: closed}
keys:
  - name: a
    key_sha256: 2C26B46B68FFC68FF99B453C1D30413413422D706483BFA0F98A5E886266E7AE
    models: [s*]
    priority: batch
    limits: {rpm: 1, tpm: 2, concurrency: 3, usd_per_day: 1.5}
upstreams:
  up:
    base_url: "https://h.example/v1"
    kind: vllm
    serves: [chat, embeddings]
    api_key: k
    headers: {x-title: b}
    forward_headers: [x-b]
    max_concurrency: 3
    max_inputs: 2
    rate: {rpm: 3, tpm: 4}
    timeouts: {connect: 1s, first_byte: 2s, idle: 3s, total: 4s}
    breaker: {failures: 1, open_for: 1s, max_open_for: 2s}
    ask_usage: false
    gpu_hour_usd: 2.5
    cache_salt: tenant
models:
  s:
    candidates:
      - {upstream: up, model: m, context_window: 4096, max_output: 512,
         price: {input: 0.28, output: 0.42, cached_input: 0.028, cache_write: 0.35, cache_write_long: 0.56},
         capabilities: [vision, tools], weight: 3}
      - {upstream: up, model: n}
    route: complexity
    complexity: {strong_share: 0.5, usd_per_day: 3, max_strong_share_per_key: 0.8, weights: w.json}
    cascade: {enabled: true, checks: [finish, json], min_logprob: -0.5}
    shadow: {share: 0.01, max_per_minute: 10, path: /var/lib/shadow.jsonl}
    fallbacks: [t]
    aliases: [fast, gpt-*]
    on_overflow: middle_out
    batching: {max_size: 8}
    cache: {enabled: true}
  t: {candidates: [{upstream: up}]}
retry: {attempts: 1, budget: 0, backoff_base: 0, backoff_max: 1s}
batching:
  {policy: off, max_size: 4, max_tokens: 5, max_wait: 0, max_inflight: 1, merge_max_output: 0,
   merge_chat: off}
cache: {enabled: on, ttl: 1m, max_bytes: 1MiB, store: redis}
usage: {store: off, path: /var/lib/u.db}
log: {level: debug, format: json}
"""
