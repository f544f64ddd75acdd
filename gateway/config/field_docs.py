"""What each field of the config means, in words for docs/configuration.md: one entry a field, none left over.

The structs of `model.py` tell what a value is in memory (seconds, bytes, nano-dollars); these tell what to
write and what follows from it.
"""

from typing import Final

SENTENCES: Final = {
    "server": "The main port, where clients call.",
    "server.host": "Address to listen on. Without `keys` only a loopback address is accepted.",
    "server.port": "Port to listen on; 0 takes a free one, which the log names.",
    "server.workers": "Processes that share the port. Several of them and `keys[].limits` need `redis`.",
    "server.max_body": "Longest request (else 413), and longest whole answer of an upstream (else 502).",
    "server.max_body_memory": "Bytes of request bodies held at once, over all calls; more get 503. "
    "One of `max_body` always has room.",
    "server.body_timeout": "The whole request body must have arrived by then, else 408.",
    "server.keepalive_timeout": "How long a client's idle connection is kept.",
    "server.max_queue": "Calls that may wait for a slot at an upstream, over all upstreams; more get 503.",
    "server.heartbeat": "Silence after which a stream gets a comment line, see [Streams](streams.md). "
    "`off`: no byte that the upstream did not send.",
    "server.cors_origins": 'Origins of web pages that may call, `"*"` for all; empty: no CORS.',
    "server.timezone": "Where the days of budgets and reports begin.",
    "server.drain": "How it stops, see [Operations](operations.md#stop).",
    "server.drain.delay": "Time between readiness turning red and the port closing.",
    "server.drain.timeout": "Time that open calls may still take after that.",
    "admin": "Metrics and probes, without a key, see [Operations](operations.md#admin-port).",
    "admin.host": "Address to listen on.",
    "admin.port": "Port to listen on; 0 takes a free one, which the log names.",
    "redis": "State that several processes and replicas share.",
    "redis.url": "Its address; what is secret in it is never printed.",
    "redis.timeout": "Longest wait for one answer of it.",
    "redis.prefix": "What the names of all its entries begin with.",
    "redis.on_failure": "While it is away: count this process's own share, let calls pass, or refuse them.",
    "keys": "Clients' keys, see [Security](security.md#keys). Without any, no key is asked for.",
    "keys[].name": "What is shown in place of the key.",
    "keys[].key": "The key itself, at least 8 characters. Give this or `key_sha256`.",
    "keys[].key_sha256": "SHA-256 of the key, so that the file holds no secret. Give this or `key`.",
    "keys[].models": "Public models that it may use, as shell-style patterns.",
    "keys[].priority": "Class of its calls; `batch` waits behind `interactive`.",
    "keys[].limits": "What it may use; null: no limit.",
    "keys[].limits.rpm": "Requests a minute.",
    "keys[].limits.tpm": "Tokens a minute.",
    "keys[].limits.concurrency": "Calls at once, waiting ones included.",
    "keys[].limits.usd_per_day": "US dollars a day.",
    "keys[].engine_fields": "Fields of a body that steer the engine itself and that it may send, "
    "see [Security](security.md#fields-that-steer-the-engine).",
    "upstreams": "Servers that answer calls, each under an ASCII name, which a response header shows.",
    "upstreams.*.base_url": "Its address, up to the part that the endpoints share: mostly it ends in `/v1`.",
    "upstreams.*.kind": "What runs there: it decides what can be merged and whose load is read, and an "
    "engine of your own costs nothing without a `price`.",
    "upstreams.*.api_key": "Sent to it as `Authorization: Bearer`.",
    "upstreams.*.headers": "Further headers, sent with every call.",
    "upstreams.*.forward_headers": "Headers of a client's request that may travel to it; never credentials.",
    "upstreams.*.max_concurrency": "Calls in flight to it; the rest wait in the gateway, in fair order.",
    "upstreams.*.max_inputs": "Items that one embeddings or completions call carries; longer ones are split.",
    "upstreams.*.rate": "What it allows us; calls are paced below it.",
    "upstreams.*.rate.rpm": "Requests a minute.",
    "upstreams.*.rate.tpm": "Tokens a minute.",
    "upstreams.*.timeouts": "How long to wait for it.",
    "upstreams.*.timeouts.connect": "Until a connection stands.",
    "upstreams.*.timeouts.first_byte": "From sending a call to the first byte of its answer. "
    "null: 120s for streams, `total` for the rest.",
    "upstreams.*.timeouts.idle": "Between two pieces of a stream; also how long a client may take none.",
    "upstreams.*.timeouts.total": "To a stream's first event, or to the end of any other answer, "
    "counted from the call's arrival.",
    "upstreams.*.breaker": "When to leave it alone for a while.",
    "upstreams.*.breaker.failures": "Failures in a row that open the breaker.",
    "upstreams.*.breaker.open_for": "How long it stays open at first.",
    "upstreams.*.breaker.max_open_for": "How long it stays open at most.",
    "upstreams.*.transport": "The HTTP client: `httptools` is a minimal, fast pool; `aiohttp` also honours "
    "the proxy variables of the environment.",
    "upstreams.*.gpu_hour_usd": "What an hour of its machine costs; what a token costs there is then shown, "
    "see [Usage](usage.md#your-own-engine).",
    "upstreams.*.cache_salt": "`tenant`: vLLM finds a prefix again only for the key that sent it, see "
    "[Cache](cache.md#the-engines-own-cache).",
    "models": "Public models: the names that clients ask for.",
    "models.*.candidates": "What can serve it, in order of preference.",
    "models.*.candidates[].upstream": "Name of an upstream.",
    "models.*.candidates[].model": "Model name that is sent to it.",
    "models.*.candidates[].price": "US dollars for a million tokens; 0 is a price. "
    "null: that of the catalogue, see [Usage](usage.md#prices).",
    "models.*.candidates[].price.input": "Of the prompt.",
    "models.*.candidates[].price.output": "Of the answer.",
    "models.*.candidates[].price.cached_input": "Of what was cached of the prompt; null: as `input`.",
    "models.*.candidates[].price.cache_write": "Of what is written to the provider's cache; "
    "null: as `input`.",
    "models.*.candidates[].price.cache_write_long": "Of what is written there for an hour or more; "
    "null: as `cache_write`.",
    "models.*.candidates[].context_window": "Tokens that prompt and answer may have together.",
    "models.*.candidates[].max_output": "Tokens that an answer may have.",
    "models.*.candidates[].capabilities": "What it can do; null: everything.",
    "models.*.candidates[].weight": "Its share under `route: weighted`.",
    "models.*.route": "How a candidate is chosen, see [Routing](routing.md); `priority`: as listed.",
    "models.*.complexity": "Which calls `route: complexity` sends to the strong candidate, see "
    "[Complexity](complexity.md). All bounds hold.",
    "models.*.complexity.strong_share": "Largest share of its calls.",
    "models.*.complexity.usd_per_day": "Dollars a day that strong answers may cost "
    "beyond what cheap ones would; null: no bound.",
    "models.*.complexity.max_strong_share_per_key": "Largest share of one key's calls; "
    "null: no bound of its own.",
    "models.*.complexity.weights": "A file that `sluice calibrate` has written; "
    "null: what comes with Sluice.",
    "models.*.cascade": "Asking the strong candidate after a look at the cheap one's answer, see "
    "[Complexity](complexity.md#cascade).",
    "models.*.cascade.enabled": "Do so, for chat calls that are not streamed.",
    "models.*.cascade.checks": "What makes an answer doubtful.",
    "models.*.cascade.min_logprob": "Least mean log probability of an answer's tokens, where the client "
    "asked for `logprobs`; null: not looked at.",
    "models.*.shadow": "Calls that the other candidate answers too, for `sluice calibrate`, see "
    "[Complexity](complexity.md#shadow). **Prompts and answers are written to a file.**",
    "models.*.shadow.share": "Share of its calls; each costs a second answer.",
    "models.*.shadow.path": "The file.",
    "models.*.baseline": "What its calls are compared with in the [savings report](savings.md): the first "
    "candidate of this public model, or a price. null: its own first candidate.",
    "models.*.baseline.price": "US dollars for a million tokens.",
    "models.*.baseline.price.input": "Of the prompt.",
    "models.*.baseline.price.output": "Of the answer.",
    "models.*.spill_after": "Longest wait for the cheapest candidates; a call that would wait longer "
    "goes to another one. null: it waits.",
    "models.*.fallbacks": "Other public models, tried in order when every candidate has failed, or when none "
    "can do what the body needs (tools, images, ...).",
    "models.*.on_overflow": "What becomes of a call that does not fit the context window, see "
    "[Context](context.md).",
    "models.*.batching": "Fields of the section [batching](#batching) that differ for this model.",
    "models.*.cache": "Fields of the section [cache](#cache) that differ for this model.",
    "retry": "Further attempts after a failure that another one may mend.",
    "retry.attempts": "Calls to the candidates of one model, the first included.",
    "retry.budget": "Further calls that each request to an upstream earns.",
    "retry.backoff_base": "Pause before the second attempt; it grows from there.",
    "retry.backoff_max": "Longest pause.",
    "batching": "Which calls are gathered, and merged where the upstream can take several in one.",
    "batching.policy": "`eager`: send at once while a slot is free; `window`: hold until `max_wait` or full.",
    "batching.max_size": "Calls in one batch.",
    "batching.max_tokens": "Estimated input tokens in one batch.",
    "batching.max_wait": "Longest time that a call is held back; 0 with `eager`: no bound but a free slot.",
    "batching.max_inflight": "`eager`: batches under way before gathering starts.",
    "batching.merge_max_output": "Generation merges only up to this `max_tokens`.",
    "batching.merge_chat": "`auto`: short, alike chat calls may share one call where the engine offers it.",
    "cache": "Whether equal calls get the answer of the first, see [Cache](cache.md).",
    "cache.enabled": "Keep answers, and let equal calls share an upstream call.",
    "cache.ttl": "How long an answer is kept.",
    "cache.max_bytes": "Memory for answers in each worker; what was used longest ago goes first.",
    "cache.store": "`memory`: each worker for itself; `redis`: all workers and replicas together.",
    "usage": "Where spending is kept.",
    "usage.store": "In a file, in Redis, or nowhere.",
    "usage.path": "The file of `sqlite`.",
    "log": "What is logged, see [Operations](operations.md#logs). Never bodies, never secrets.",
    "log.level": "The least important lines to write; one line a call is `info`.",
    "log.format": "`auto`: text on a terminal, else JSON.",
    "traces": "Spans of calls for OpenTelemetry, see [Traces](traces.md).",
    "traces.enabled": "Send them, by OTLP; where to, `OTEL_EXPORTER_OTLP_ENDPOINT` tells.",
    "traces.sample": "The share of calls that is traced, of those whose client does not trace itself.",
}
