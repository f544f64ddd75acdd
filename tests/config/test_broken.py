"""Broken configs: all mistakes are reported at once, each with its path."""

import pytest
from sample_configs import MINIMAL

MODELS = "models: {small: {candidates: [{upstream: local}]}}\n"


def upstream(fields: str) -> str:
    return f"upstreams: {{local: {{base_url: 'http://127.0.0.1:8000/v1', {fields}}}}}\n" + MODELS


BROKEN = {
    "fields that do not exist": (
        MINIMAL.replace("{upstream: local}", "{upstream: local, modle: x}")
        + "server: {prot: 1, drain: {dleay: 1s}}\ncaches: {}\nzzz: 1\n",
        {
            "server.prot": "unknown field; did you mean port?",
            "server.drain.dleay": "unknown field; did you mean delay?",
            "caches": "unknown field; did you mean cache?",
            "zzz": "unknown field",
            "models.small.candidates[0].modle": "unknown field; did you mean model?",
        },
    ),
    "fields of another section": (
        MINIMAL.replace("{upstream: local}", "{upstream: local, rpm: 5}")
        + "server: {admin_port: 1, delay: 1s}\nport: 1\nlimits: {}\n"
        "keys: [{name: a, key: abcdefgh, tpm: 5}]\n",
        {
            "server.admin_port": "unknown field; did you mean admin.port?",
            "server.delay": "unknown field; did you mean drain.delay?",
            "port": "unknown field; did you mean server.port?",
            "limits": "unknown field; did you mean keys[].limits?",
            "keys[0].tpm": "unknown field; did you mean limits.tpm?",
            "models.small.candidates[0].rpm": "unknown field; did you mean keys[].limits.rpm?",
        },
    ),
    "former names and names of other gateways": (
        "upstreams:\n  a: {baseURL: 'http://h/v1', base_url: 'http://h/v1', transport: lean,"
        " breaker: {open: 1s, max_open: 2s}}\n  b: {api_base: 'http://h/v1', base_url: 'http://h/v1'}\n"
        "models: {m: {candidates: [{upstream: a}]}}\nkeys: [{name: a, key: abcdefgh, budget: 5}]\n"
        "server: {max_bodies: 1GiB}\nretry: {base: 1s, max: 2s}\n",
        {
            "upstreams.a.baseURL": "unknown field; did you mean base_url?",
            "upstreams.a.transport": 'found "lean"; did you mean "httptools"?',
            "upstreams.a.breaker.open": "unknown field; did you mean open_for?",
            "upstreams.a.breaker.max_open": "unknown field; did you mean max_open_for?",
            "upstreams.b.api_base": "unknown field; did you mean base_url?",
            "keys[0].budget": "unknown field; did you mean limits.usd_per_day?",
            "server.max_bodies": "unknown field; did you mean max_body_memory?",
            "retry.base": "unknown field; did you mean backoff_base?",
            "retry.max": "unknown field; did you mean backoff_max?",
        },
    ),
    "aliases that are taken": (
        "upstreams: {local: {base_url: 'http://127.0.0.1:8000/v1'}}\n"
        "models:\n"
        "  small: {candidates: [{upstream: local}], aliases: [fast, gpt-*, large, fast, small]}\n"
        "  large: {candidates: [{upstream: local}], aliases: [best, gpt-*, fast, gpt-4o]}\n",
        {
            "models.small.aliases[2]": '"large" is already the name of a model',
            "models.small.aliases[3]": '"fast" is already an alias of "small"',
            "models.small.aliases[4]": '"small" is already the name of a model',
            "models.large.aliases[1]": '"gpt-*" is already an alias of "small"',
            "models.large.aliases[2]": '"fast" is already an alias of "small"',
        },
    ),
    "aliases that are no names": (
        MINIMAL.replace("{candidates", "{aliases: ['', [a], ' b'], candidates"),
        {
            "models.small.aliases[0]": "must be 1 to 256 printable characters",
            "models.small.aliases[1]": "must be 1 to 256 printable characters",
            "models.small.aliases[2]": "must be 1 to 256 printable characters",
        },
    ),
    "wrong types": (
        "server: [1]\nkeys: {a: b}\nupstreams: {local: 5}\nmodels: {small: {candidates: {upstream: local}}}\n"
        "log: {level: [info], format: {a: b}}\n",
        {
            "server": "must be fields such as host, port, workers; found a list",
            "keys": "must be a list",
            "upstreams.local": "must be fields such as base_url, kind, api_key; found text",
            "models.small.candidates": "must be a list",
            "log.level": "must be one of debug, info, warning, error; found a list",
            "log.format": "must be one of auto, json, text; found fields",
        },
    ),
    "wrong scalars": (
        MINIMAL + "server: {port: 65536, workers: 0, max_body: 32MB, body_timeout: soon, heartbeat: 0, host: '',"
        " timezone: Mars/Base, max_queue: -1, cors_origins: [https://a.example/path]}\n"
        "admin: {port: http, host: '127.0.0.1:80'}\nretry: {attempts: 1.5, budget: lots, backoff_base:}\n"
        "cache: {enabled: maybe, ttl: 0}\nusage: {store: sqlight, path: ''}\n",
        {
            "server.port": 'must be a whole number from 0 to 65535, such as 8080; found "65536"',
            "server.workers": "must be a whole number from 1",
            "server.max_body": 'whole number of bytes or of KiB, MiB or GiB (32MiB, 512KiB); found "32MB"',
            "server.body_timeout": 'found "soon"',
            "server.heartbeat": "; or off; found",
            "server.host": "must be an address or a host name",
            "server.timezone": "such as UTC or Europe/Berlin",
            "server.max_queue": "must be a whole number of at least 0",
            "server.cors_origins[0]": "must be an origin without a path",
            "admin.port": 'found "http"',
            "admin.host": "without port or brackets",
            "retry.attempts": "must be a whole number",
            "retry.budget": "must be a number from 0 to 10, such as 0.1",
            "retry.backoff_base": "found nothing",
            "cache.enabled": "must be true or false",
            "cache.ttl": "must be more than 0",
            "usage.store": 'must be one of sqlite, redis, off; found "sqlight"; did you mean "sqlite"?',
            "usage.path": "must be the path of a file",
        },
    ),
    "shares above the whole": (
        MINIMAL + "traces: {sample: 1.5}\nretry: {budget: 1.5}\n",
        {"traces.sample": 'must be a number from 0 to 1, such as 0.3; found "1.5"'},
    ),
    "addresses of upstreams": (
        "upstreams:\n  a: {base_url: localhost:8000}\n  b: {base_url: 'http://'}\n"
        "  c: {base_url: 'http://h/v1?a=b'}\n"
        "  d: {base_url: 'http://user:pass@h/v1'}\n  e: {base_url: 'http://h:99999/v1'}\n"
        "  f: {base_url: 'http://[::1'}\n"
        "  g: {base_url: 'http://h/v1/chat/completions'}\n"
        "  h: {base_url: 'http://a b'}\n  i: {}\n  j: {base_url:}\n"
        "models: {m: {candidates: [{upstream: a}]}}\n",
        {
            "upstreams.a.base_url": "must be an address that begins with http:// or https://, such as",
            "upstreams.b.base_url": "must name a host",
            "upstreams.c.base_url": "no query (?) and no fragment (#)",
            "upstreams.d.base_url": "no user or password; put the credential into api_key or headers",
            "upstreams.e.base_url": "with a port from 1 to 65535",
            "upstreams.f.base_url": "must be an address",
            "upstreams.g.base_url": "must end before the endpoint's own path",
            "upstreams.h.base_url": "without spaces",
            "upstreams.i.base_url": "required, but missing",
            "upstreams.j.base_url": "found nothing",
        },
    ),
    "names that do not exist": (
        MINIMAL.replace("upstream: local}", "upstream: local}, {upstream: locl}, {upstream: zzzz}")
        + "  other: {candidates: [{upstream: local}], fallbacks: [smal, other, small]}\n",
        {
            "models.small.candidates[1].upstream": 'no upstream named "locl"; did you mean "local"?',
            "models.small.candidates[2].upstream": 'no upstream named "zzzz"',
            "models.other.fallbacks[0]": 'no model named "smal"; did you mean "small"?',
            "models.other.fallbacks[1]": "a model cannot be its own fallback",
        },
    ),
    "circles of fallbacks": (
        "upstreams: {u: {base_url: 'http://h/v1'}}\nmodels:\n"
        "  a: {candidates: [{upstream: u}], fallbacks: [b]}\n"
        "  b: {candidates: [{upstream: u}], fallbacks: [c]}\n"
        "  c: {candidates: [{upstream: u}], fallbacks: [b]}\n",
        {"models.b.fallbacks": "go round in a circle: b -> c -> b"},
    ),
    "keys": (
        MINIMAL + "keys:\n  - {name: a}\n  - {name: a, key: abcdefgh, key_sha256: " + "0" * 64 + "}\n"
        "  - {key: short}\n  - {name: d, key: abcdefgh}\n  - {name: e, key_sha256: xyz}\n"
        "  - {name: f, key: 'with space'}\n"
        "  - {name: g, key: ''}\n  - text\n  - {name: i, key: abcdefghi, priority: high, models: [''],"
        " limits: {rpm: 0, usd_per_day: free}}\n",
        {
            "keys[0].key": "required, unless key_sha256 is given",
            "keys[1].key_sha256": "give either key or key_sha256, not both",
            "keys[1].name": '"a" is already the name of keys[0]',
            "keys[2].name": "required, but missing",
            "keys[2].key": "must be at least 8 ASCII characters without spaces",
            "keys[3].key": "the same key as that of keys[1]",
            "keys[4].key_sha256": "must be the key's SHA-256 as 64 hexadecimal digits",
            "keys[5].key": "without spaces",
            "keys[6].key": "must not be empty",
            "keys[7]": "must be fields such as name, key, key_sha256; found text",
            "keys[8].priority": "must be one of interactive, batch",
            "keys[8].models[0]": "must be 1 to 256 printable characters",
            "keys[8].limits.rpm": "must be a whole number of at least 1",
            "keys[8].limits.usd_per_day": "an amount is a plain decimal number of USD",
        },
    ),
    "a key with the name of shadows": (
        "upstreams: {u: {base_url: 'http://h/v1'}}\nkeys: [{name: shadow, key: abcdefgh}]\nmodels:\n"
        "  m: {route: complexity, candidates: [{upstream: u, model: a}, {upstream: u, model: b}],"
        " shadow: {share: 0.5}}\n",
        {"keys[0].name": '"shadow" is the name that shadow answers are recorded under'},
    ),
    "one key twice, as text and as hash": (
        MINIMAL + "keys:\n  - {name: a, key: abcdefgh}\n"
        "  - {name: b, key_sha256: 9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab}\n",
        {"keys[1].key": "the same key as that of keys[0]"},
    ),
    "headers": (
        upstream(
            "api_key: k,"
            " headers: {Host: a, content-length: 1, Authorization: x, 'bad name': y, x-a: \"a\\nb\", X-A: c},"
            " forward_headers: [authorization, Cookie, transfer-encoding, x-a, 'a:b', x-sluice-priority]"
        ),
        {
            "upstreams.local.headers.Host": "the gateway sets this header itself",
            "upstreams.local.headers.content-length": "the gateway sets this header itself",
            "upstreams.local.headers.Authorization": "api_key sets this header already",
            "upstreams.local.headers.bad name": "must be a header's name",
            "upstreams.local.headers.x-a": "on one line",
            "upstreams.local.headers.X-A": "is set twice",
            "upstreams.local.forward_headers[0]": "a client's credentials never travel",
            "upstreams.local.forward_headers[1]": "a client's credentials never travel",
            "upstreams.local.forward_headers[2]": "belongs to the gateway",
            "upstreams.local.forward_headers[3]": "headers sets this header already",
            "upstreams.local.forward_headers[4]": "must be a header's name",
            "upstreams.local.forward_headers[5]": "belongs to the gateway",
        },
    ),
    "reachable without keys": (
        MINIMAL + "server: {host: 0.0.0.0, port: 80}\nadmin: {host: '::', port: 80}\n",
        {
            "server.host": "add keys, or listen on 127.0.0.1",
            "admin.host": ":: can be reached from other machines; add admin.keys (sluice key new prints one)",
            "admin.port": "80 is also server.port",
        },
    ),
    "a proxy's word without the proxy": (
        MINIMAL + "admin: {host: 0.0.0.0, trusted_header: x-user, keys: [short, '']}\n",
        {
            "admin.trusted_proxies": "name the proxies whose trusted_header counts",
            "admin.keys[0]": "must be at least 8 ASCII characters",
            "admin.keys[1]": "must not be empty",
        },
    ),
    "a proxy without its word": (
        MINIMAL + "admin: {trusted_proxies: [10.0.0.7, 10.0.0.1/8]}\n",
        {
            "admin.trusted_header": "name the header in which these proxies say who has signed in",
            "admin.trusted_proxies[1]": "must be an address or a network, such as 10.0.0.7",
        },
    ),
    "what needs redis": (
        MINIMAL + "server: {workers: 2}\nkeys: [{name: a, key: abcdefgh, limits: {rpm: 5}}]\n"
        "usage: {store: redis}\ncache: {store: redis}\n",
        {
            "server.workers": "several workers with limits on keys (a) need redis to count in",
            "usage.store": "add a redis section with its url",
            "cache.store": "add a redis section with its url",
        },
    ),
    "names": (
        "upstreams: {'': {base_url: 'http://h/v1'}, 'é': {base_url: 'http://h/v1'}}\n"
        "models: {\"a\\nb\": {candidates: []}, '': {}, " + "x" * 257 + ": {candidates: [{upstream: '\"'}]}}\n",
        {
            "upstreams.": "must be 1 to 256 printable characters",
            "upstreams.é": "because a response header carries it",
            "models.a\\nb": "must be 1 to 256 printable characters",
            "models.a\\nb.candidates": "list at least one candidate",
            "models.": "must be 1 to 256 printable characters",
            "models..candidates": "required, but missing",
            "models." + "x" * 57 + "...": "must be 1 to 256 printable characters",
            "models." + "x" * 57 + "....candidates[0].upstream": "no upstream named",
        },
    ),
    "numbers and prices": (
        upstream(
            "max_concurrency: 0, max_inputs: many, rate: {rpm: -1}, timeouts: {total: 0, first_byte: x},"
            " breaker: {open_for: 5m}, kind: vlm"
        ).replace(
            "{upstream: local}",
            "{upstream: local, price: {input: a}, weight: -1, context_window: 0, capabilities: [tool, vision]}",
        )
        + "batching: {max_size: 0, policy: greedy}\nretry: {backoff_max: 1ms}\n"
        "redis: {url: 'http://h', on_failure: panic}\n",
        {
            "upstreams.local.max_concurrency": "at least 1",
            "upstreams.local.max_inputs": 'found "many"',
            "upstreams.local.rate.rpm": "at least 1",
            "upstreams.local.timeouts.total": "must be more than 0",
            "upstreams.local.timeouts.first_byte": 'found "x"',
            "upstreams.local.breaker.max_open_for": "must not be less than breaker.open_for",
            "upstreams.local.kind": 'did you mean "vllm"?',
            "models.small.candidates[0].price.input": "an amount is a plain decimal number of USD",
            "models.small.candidates[0].price.output": "required, but missing",
            "models.small.candidates[0].weight": "from 0 to 1000000",
            "models.small.candidates[0].context_window": "at least 1",
            "models.small.candidates[0].capabilities[0]": 'did you mean "tools"?',
            "batching.max_size": "at least 1",
            "batching.policy": "must be one of eager, window, off",
            "retry.backoff_max": "must not be less than retry.backoff_base",
            "redis.url": "redis:// or rediss:// or unix://",
            "redis.on_failure": "must be one of local, open, closed",
        },
    ),
    "sections that are missing": (
        "log: {}\n",
        {"upstreams": "required, but missing", "models": "required, but missing"},
    ),
    "sections that are empty": (
        "upstreams:\nmodels: {}\n",
        {"upstreams": "name at least one upstream", "models": "name at least one model"},
    ),
    "a name that reports use": (
        "upstreams: {cache: {base_url: 'http://127.0.0.1:8000/v1'}}\n"
        "models: {small: {candidates: [{upstream: cache}]}}\n",
        {"upstreams.cache": "reports list cached answers under this name"},
    ),
    "fields that are set twice, tags, and names that are not text": (
        MINIMAL + "server:\n  port: 1\n  workers: x\n  port: 2\n  host: !!str a\n  ? [x]\n  : y\n",
        {
            "server.port": 'line 8, column 3: "port" is set twice; the first is in line 6',
            "server.workers": "must be a whole number",
            "server.host": "tags (text that begins with !) are not allowed",
            "server": "a field's name must be text",
        },
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_every_mistake_is_reported_with_its_path(problems_of, case):
    text, expected = BROKEN[case]
    problems = problems_of(text)
    assert problems.keys() == expected.keys()
    for place, words in expected.items():
        assert words in problems[place], place


def test_a_mistake_inside_a_model_does_not_hide_others(problems_of):
    problems = problems_of(MINIMAL.replace("local}", "lokal}") + "server: {port: x}\n")
    assert problems.keys() == {"models.small.candidates[0].upstream", "server.port"}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_host_needs_no_keys(good, host):
    assert good(MINIMAL + f"server: {{host: '{host}'}}\n").config.server.host == host


def test_with_keys_any_host_is_accepted(good):
    good(MINIMAL + "server: {host: 0.0.0.0}\nkeys: [{name: a, key: abcdefgh}]\n")


def test_workers_share_limits_through_redis(good):
    good(
        MINIMAL + "server: {workers: 2}\nkeys: [{name: a, key: abcdefgh, limits: {rpm: 5}}]\n"
        "redis: {url: 'redis://h'}\n"
    )


def test_a_pattern_that_matches_no_model_is_a_warning(good):
    loaded = good(MINIMAL + "keys: [{name: a, key: abcdefgh, models: ['sm*', smal]}]\n")
    assert loaded.warnings == ['keys[0].models[1]: "smal" matches no model; did you mean "small"?']


@pytest.mark.parametrize("off", ["off", "'off'", "false"])
def test_off_is_not_a_boolean(good, off):
    config = good(
        MINIMAL + f"server: {{heartbeat: {off}}}\nbatching: {{policy: {off}, merge_chat: {off}}}\n"
        f"usage: {{store: {off}}}\n"
    ).config
    assert config.server.heartbeat is None
    assert (config.batching.policy, config.batching.merge_chat, config.usage.store) == ("off", "off", "off")


def test_names_that_other_yaml_readers_turn_into_booleans_or_numbers(good):
    config = good(
        "upstreams: {on: {base_url: 'http://h/v1', api_key: 0123}}\n"
        "models: {4.10: {candidates: [{upstream: on}]}, null: {candidates: [{upstream: on, model: 1e3}]}}\n"
    ).config
    assert config.upstreams["on"].api_key.reveal() == "0123"
    assert list(config.models) == ["4.10", "null"]
    assert config.models["null"].candidates[0].model == "1e3"
