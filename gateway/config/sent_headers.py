"""Which headers a config may add to upstream calls or let travel there."""

from collections.abc import Iterator
from typing import Final

from gateway.config.model import Config, Upstream
from gateway.config.problems import Problem, join

_CONNECTION: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"}
)
_BODY: Final = frozenset(("content-type", "content-encoding", "accept-encoding", "x-request-id"))
_CREDENTIALS: Final = frozenset(("authorization", "x-api-key", "api-key", "cookie"))


def header_problems(config: Config) -> Iterator[Problem]:
    """Header names in `headers` and `forward_headers` that must not or need not stand there."""
    for name, upstream in config.upstreams.items():
        yield from _fixed(upstream, join(join("upstreams", name), "headers"))
        yield from _forwarded(upstream, join(join("upstreams", name), "forward_headers"))


def _fixed(upstream: Upstream, place: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for header in upstream.headers:
        name = header.lower()
        if name in _CONNECTION | _BODY:
            yield Problem(join(place, header), "the gateway sets this header itself")
        elif name == "authorization" and upstream.api_key is not None:
            yield Problem(join(place, header), "api_key sets this header already; give one of the two")
        elif name in seen:
            yield Problem(join(place, header), "this header stands twice; case makes no difference")
        seen.add(name)


def _forwarded(upstream: Upstream, place: str) -> Iterator[Problem]:
    fixed = {header.lower() for header in upstream.headers}
    for i, header in enumerate(upstream.forward_headers):
        name = header.lower()
        if name in _CREDENTIALS:
            yield Problem(f"{place}[{i}]", "a client's credentials never travel to an upstream; use api_key")
        elif name in _CONNECTION | _BODY or name.startswith("x-sluice-"):
            yield Problem(f"{place}[{i}]", "this header belongs to the gateway and cannot be forwarded")
        elif name in fixed:
            yield Problem(f"{place}[{i}]", "headers sets this header already; give it in one of the two")
