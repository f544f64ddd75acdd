"""The description of every config field, for docs/configuration.md and the JSON Schema.

The structs of `model.py` say what a value is in memory (seconds, bytes, nano-dollars). These sentences say
what to write and what it does. A test checks that every field has exactly one.
"""

from typing import Final

SENTENCES: Final = {
    "server": "The main port, for clients.",
    "server.host": "Address to listen on. Without `keys`, only a loopback address is accepted.",
    "server.port": "Port to listen on; 0 takes a free port, which the log names.",
    "server.workers": "Processes that share the port. More than 1 together with `keys[].limits` needs `redis`.",
    "server.max_body": "Largest request body; a larger one gets a 413.",
    "server.max_answer": "Largest answer of an upstream that is not a stream. An embeddings list with a "
    "larger one is sent again in halves, any other request gets a 502. null: four times `max_body`.",
    "server.max_body_memory": "Memory for all request bodies held at once; a request beyond it gets a 503. "
    "A single body of `max_body` always fits.",
    "server.body_timeout": "Time for the whole request body to arrive; a later one gets a 408.",
    "server.keepalive_timeout": "How long an idle client connection stays open.",
    "server.max_queue": "Requests that may wait for a concurrency slot, over all upstreams; more get a 503.",
    "server.heartbeat": "Silence after which a stream gets a comment line, see [Streams](streams.md). "
    "`off`: nothing but what the upstream sends.",
    "server.cors_origins": 'Origins of web pages that may call, `"*"` for all. Empty: no CORS.',
    "server.timezone": "Time zone in which the days of budgets and reports begin.",
    "server.learned_path": "File that keeps found merge modes over restarts, see [Batching](batching.md#learning); "
    "`off`: none. Where it cannot be written nothing is kept.",
    "server.metrics_dir": "Folder in which `workers` keep their metrics, best in memory (tmpfs), see "
    "[Monitoring](monitoring.md#metrics-of-several-workers).",
    "server.drain": "Graceful stop, see [Operations](operations.md#stop).",
    "server.drain.delay": "Time between not being ready and closing the port.",
    "server.drain.timeout": "Time for open requests to finish after that.",
    "admin": "The admin port: the page, metrics and probes, see [Operations](operations.md#admin-port).",
    "admin.host": "Address to listen on. Other than loopback needs `keys` or `trusted_header`.",
    "admin.port": "Port to listen on; 0 takes a free port, which the log names.",
    "admin.keys": "Keys for the page and `/admin/...`, at least 8 characters each. Empty: none is asked for. "
    "`/metrics` and the probes stay open.",
    "admin.trusted_header": "Header in which a proxy names who has signed in there, such as `x-forwarded-user`.",
    "admin.trusted_proxies": "The proxies whose `trusted_header` counts.",
    "inspector": "What the gateway decided for each of the last requests, in memory only, see "
    "[Inspector](inspector.md).",
    "inspector.calls": "Finished requests to keep, in each worker; 0 keeps none.",
    "inspector.max_bytes": "Memory for them, in each worker.",
    "inspector.bodies": "Whether it keeps prompts and answers too, up to 256 KiB each, see "
    "[Inspector](inspector.md#bodies). Whoever can read the admin port can read them then.",
    "redis": "State shared by workers and replicas.",
    "redis.url": "Address of Redis, of any node of a cluster, or of sentinels: "
    "`redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster`; `rediss` is TLS. A password in it must be "
    "percent-encoded; it is never printed.",
    "redis.password": "Password, as it is: any characters. A user goes into the URL: `redis://user@host`.",
    "redis.timeout": "Longest wait for a reply.",
    "redis.prefix": "Prefix of the name of every entry.",
    "redis.on_failure": "While Redis is unavailable: enforce this process's share of each limit, let every "
    "request pass, or reject every request.",
    "keys_file": "File with further keys, for thousands of them, see [Security](security.md#many-keys). A relative "
    "path starts at the config's folder.",
    "keys": "Clients' keys, see [Security](security.md#keys). Without keys, no client needs one.",
    "keys[].name": "Name in metrics, logs and reports.",
    "keys[].key": "The key itself, at least 8 characters. Set this or `key_sha256`.",
    "keys[].key_sha256": "SHA-256 of the key, which keeps the secret out of the file. Set this or `key`.",
    "keys[].models": "Public models that the key may use, as shell-style patterns.",
    "keys[].priority": "Class of its requests; `batch` waits behind `interactive`.",
    "keys[].limits": "Limits of the key; null is no limit.",
    "keys[].limits.rpm": "Requests per minute.",
    "keys[].limits.tpm": "Tokens per minute.",
    "keys[].limits.concurrency": "Requests at once, including those that wait.",
    "keys[].limits.usd_per_day": "US dollars per day.",
    "keys[].engine_fields": "Body fields that steer the engine and that the key may send, see "
    "[Security](security.md#fields-that-steer-the-engine).",
    "keys[].keep_bodies": "Whether `inspector.bodies` holds for the key's requests.",
    "auth": "Further ways to authenticate.",
    "auth.jwt": "Identity providers whose tokens are accepted like keys, see [Single sign-on](sso.md).",
    "auth.jwt[].name": "Begins the names of its callers in logs, reports and metrics.",
    "auth.jwt[].issuer": "The claim `iss` of its tokens, letter for letter.",
    "auth.jwt[].audience": "What the claim `aud` must hold: the name of this gateway at the provider.",
    "auth.jwt[].jwks_url": "Address of the provider's public keys. Set this or `jwks_file`. Plain `http` is accepted "
    "from loopback only.",
    "auth.jwt[].jwks_file": "File with the provider's public keys, read anew when it changes.",
    "auth.jwt[].ca_file": "PEM file of CAs that `jwks_url` is trusted by, added to the system's.",
    "auth.jwt[].algorithms": "Signatures that are accepted. Those with a shared secret (`HS256`) never are.",
    "auth.jwt[].key_from": "Claim that tells callers apart: each has limits and a budget of its own. null: a group is "
    "one caller.",
    "auth.jwt[].groups_from": "Claim with the groups, a list or one text. A path such as `realm_access.roles` leads "
    "into objects.",
    "auth.jwt[].map": "For each group the name of a key whose models, class and limits hold; the first group that "
    'fits counts. `"*"` is every valid token. Tokens without a mapped group are refused.',
    "upstreams": "Servers that answer requests, by name. Names are ASCII; a response header shows them.",
    "upstreams.*.base_url": "Address up to the part that all endpoints share; it usually ends in `/v1`.",
    "upstreams.*.kind": "Server software. It decides what can be merged, which load metrics are read and how the "
    "key is sent; a self-hosted engine costs nothing unless it has a `price`.",
    "upstreams.*.api_key": "Sent as `Authorization: Bearer`, with `kind: anthropic` as `x-api-key`.",
    "upstreams.*.serves": "Endpoints that calls may go to there, see "
    "[Routing](routing.md#which-candidates-can-serve-a-request). null: what the kind is known to serve.",
    "upstreams.*.headers": "Headers sent with every attempt.",
    "upstreams.*.forward_headers": "Client headers to forward; never credentials.",
    "upstreams.*.max_concurrency": "Concurrency slots; further requests wait in the gateway, in fair order. `auto` "
    "finds the number, see [Admission](admission.md). `null` is `auto` for `vllm`, `sglang` and `llamacpp`, else 64.",
    "upstreams.*.max_inputs": "Items per embeddings or completions call; longer lists are split.",
    "upstreams.*.rate": "Rate limit of the upstream; attempts are paced below it.",
    "upstreams.*.rate.rpm": "Requests per minute.",
    "upstreams.*.rate.tpm": "Tokens per minute.",
    "upstreams.*.timeouts": "Timeouts of an attempt.",
    "upstreams.*.timeouts.connect": "Until the connection is established.",
    "upstreams.*.timeouts.first_byte": "From sending the request to the first byte of the answer. null: "
    "120s for streams, `total` for other requests.",
    "upstreams.*.timeouts.idle": "Between two pieces of a stream, and for a client that stops reading.",
    "upstreams.*.timeouts.total": "From the request's arrival to a stream's first event, or to the end of "
    "any other answer.",
    "upstreams.*.breaker": "Circuit breaker.",
    "upstreams.*.breaker.failures": "Consecutive failures that open it.",
    "upstreams.*.breaker.open_for": "How long it stays open the first time.",
    "upstreams.*.breaker.max_open_for": "How long it stays open at most.",
    "upstreams.*.transport": "HTTP client: `httptools` is a minimal, fast pool; `aiohttp` also honors the "
    "proxy variables of the environment.",
    "upstreams.*.ca_file": "PEM file of CAs to trust beside the system's, for an upstream whose certificate is "
    "signed by a private CA; see [Providers](providers.md#private-cas-and-proxies).",
    "upstreams.*.ask_usage": "Ask for the usage of streams whose clients did not (`stream_options`). A model "
    "that refuses it is not asked again; `false`: never ask.",
    "upstreams.*.gpu_hour_usd": "Cost of one hour of its machine; the gateway then reports the cost per "
    "token, see [Usage](usage.md#your-own-engine).",
    "upstreams.*.cache_salt": "`tenant`: vLLM reuses a cached prefix only for the key that sent it, see "
    "[Cache](cache.md#the-engines-own-cache).",
    "models": "Public models, by the name that clients ask for.",
    "models.*.candidates": "Upstreams that can serve the model, in order of preference.",
    "models.*.candidates[].upstream": "Name of an upstream.",
    "models.*.candidates[].model": "Model name sent to it.",
    "models.*.candidates[].price": "US dollars per million tokens; 0 is a price. null: the price from the "
    "catalogue, see [Usage](usage.md#prices).",
    "models.*.candidates[].price.input": "Prompt tokens.",
    "models.*.candidates[].price.output": "Answer tokens.",
    "models.*.candidates[].price.cached_input": "Prompt tokens read from the provider's cache; null: as `input`.",
    "models.*.candidates[].price.cache_write": "Prompt tokens written to the provider's cache; null: as `input`.",
    "models.*.candidates[].price.cache_write_long": "Prompt tokens written there for an hour or longer; "
    "null: as `cache_write`.",
    "models.*.candidates[].context_window": "Tokens of prompt and answer together.",
    "models.*.candidates[].max_output": "Tokens of an answer.",
    "models.*.candidates[].capabilities": "What the candidate supports; null: everything.",
    "models.*.candidates[].weight": "Relative share of the requests under `route: weighted`.",
    "models.*.aliases": "Further names that clients may ask for, plain or shell-style patterns, see "
    "[Routing](routing.md#aliases).",
    "models.*.route": "How a candidate is chosen, see [Routing](routing.md). `priority`: in the order listed.",
    "models.*.complexity": "Bounds on the requests that `route: complexity` sends to the strong candidate, "
    "see [Complexity](complexity.md). All of them apply.",
    "models.*.complexity.strong_share": "Largest share of the model's requests.",
    "models.*.complexity.usd_per_day": "Dollars per day that strong answers may cost beyond the cheap ones; "
    "null: unlimited.",
    "models.*.complexity.max_strong_share_per_key": "Largest share of one key's requests; null: unlimited.",
    "models.*.complexity.weights": "A file written by `sluice calibrate`; null: the shipped weights.",
    "models.*.cascade": "Ask the cheap candidate first and the strong one only if the answer fails a check, "
    "see [Complexity](complexity.md#cascade).",
    "models.*.cascade.enabled": "Turn it on, for chat requests that are not streamed.",
    "models.*.cascade.checks": "Checks that an answer must pass.",
    "models.*.cascade.min_logprob": "Lowest mean log probability of an answer's tokens, if the client asked "
    "for `logprobs`; null: not checked.",
    "models.*.shadow": "Send a copy of some requests to the other candidate, for `sluice calibrate`, see "
    "[Complexity](complexity.md#shadow). **Prompts and answers are written to a file.**",
    "models.*.shadow.share": "Share of the requests; each costs a second answer.",
    "models.*.shadow.max_per_minute": "At most this many second answers a minute per worker process, evenly "
    "spaced; null: no bound.",
    "models.*.shadow.path": "File for the pairs of answers.",
    "models.*.baseline": "What the [savings report](savings.md) compares the model's requests with: the "
    "first candidate of this public model, or a price. null: the model's own first candidate.",
    "models.*.baseline.price": "US dollars per million tokens.",
    "models.*.baseline.price.input": "Prompt tokens.",
    "models.*.baseline.price.output": "Answer tokens.",
    "models.*.spill_after": "Longest wait for the preferred candidates; a request that would wait longer "
    "goes to another candidate. null: it waits.",
    "models.*.fallbacks": "Other public models, tried in order when every candidate has failed, or when "
    "none supports what the request needs (tools, images, ...).",
    "models.*.on_overflow": "What to do with a prompt that exceeds the context window, see [Context](context.md).",
    "models.*.batching": "Overrides of the section [batching](#batching).",
    "models.*.cache": "Overrides of the section [cache](#cache).",
    "retry": "Further attempts after a failure that may be temporary.",
    "retry.attempts": "Attempts per model, the first included.",
    "retry.budget": "Retry budget: extra attempts per request to an upstream (0.1 is at most 10 % more load).",
    "retry.backoff_base": "Pause before the second attempt to the same candidate; it grows from there.",
    "retry.backoff_max": "Longest pause.",
    "batching": "Requests gathered into a batch, and merged where the upstream takes several in one call.",
    "batching.policy": "`eager`: send at once while a slot is free; `window`: wait for `max_wait` or a full batch.",
    "batching.max_size": "Requests in a batch.",
    "batching.max_tokens": "Estimated input tokens in a batch.",
    "batching.max_wait": "Longest time that a request is held back; 0 with `eager`: until a slot is free.",
    "batching.max_inflight": "`eager`: batches in flight before gathering starts.",
    "batching.merge_max_output": "Only generations with at most this `max_tokens` are merged.",
    "batching.merge_chat": "`auto`: short, similar chat requests may share one call where the engine offers it.",
    "cache": "Answers equal requests from a cache, see [Cache](cache.md).",
    "cache.enabled": "Store answers, and let equal requests share one upstream call.",
    "cache.ttl": "How long an answer is stored.",
    "cache.max_bytes": "Memory for answers in each worker; the least recently used are evicted first.",
    "cache.store": "`memory`: separate for each worker; `redis`: shared by all workers and replicas.",
    "usage": "Where usage and cost are recorded.",
    "usage.store": "A file, Redis, or nowhere.",
    "usage.path": "File of `sqlite`.",
    "batches": "Files and batches, see [Batches](batches.md).",
    "batches.enabled": "Whether the gateway serves `/v1/files` and `/v1/batches`.",
    "batches.path": "Folder of the files and of their database.",
    "batches.url": "Shared folder (`file:///srv/batches`) or object store for the files of several gateways, which "
    "then need `redis`. null: everything is below `path`.",
    "batches.max_file": "Largest file; a larger one gets a 413.",
    "batches.max_lines": "Most lines of a batch.",
    "batches.keep": "How long files, and batches that have ended, are kept.",
    "batches.max_disk": "Bytes of all files together; uploads beyond it get a 507, and batches pause.",
    "batches.hours": 'Hours of the day in which lines are sent, such as `"20:00-07:00"`, in `server.timezone`. '
    "null: at any time.",
    "log": "Logging, see [Monitoring](monitoring.md#logs). Never bodies, never secrets.",
    "log.level": "Least severe level that is written; each request is a line whose level depends on its outcome.",
    "log.format": "`auto`: text on a terminal, else JSON.",
    "traces": "OpenTelemetry spans, see [Monitoring](monitoring.md#traces).",
    "traces.enabled": "Export spans by OTLP to `OTEL_EXPORTER_OTLP_ENDPOINT`.",
    "traces.sample": "Share of the requests to trace; a client's own `traceparent` decides for its request.",
}
