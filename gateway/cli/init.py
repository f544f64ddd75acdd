"""`sluice init`: writes a commented `sluice.yaml` from three questions or flags, and finds engines on this machine."""

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gateway.cli.key import mint
from gateway.config.load import load

PORTS: Final = (8000, 8001, 30000, 11434, 1234, 8080, 5000)
"""Where vLLM, SGLang, Ollama, LM Studio and llama.cpp listen unless told otherwise."""
_TIMEOUT_S: Final = 1.0
_MAX_BYTES: Final = 1024 * 1024
_OPENAI: Final = "https://api.openai.com/v1"
_OPENAI_MODEL: Final = "gpt-5-mini"
_KINDS: Final = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}
_OURS: Final = "sluice"


class Engine(NamedTuple):
    """A server with OpenAI's API: its address, its kind as the config has it, and its models."""

    base_url: str
    kind: str
    models: Sequence[str]


class _Listed(msgspec.Struct):
    id: str
    owned_by: str | None = None


class _Models(msgspec.Struct):
    data: list[_Listed]


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--config", metavar="FILE", default="sluice.yaml", help="the file to write (sluice.yaml)")
    parser.add_argument("--upstream", metavar="URL", help="address of the upstream, up to /v1")
    parser.add_argument("--model", metavar="NAME", help="its model; by default all that it lists")
    parser.add_argument("--team", action="store_true", help="listen for other machines, with a key")
    parser.add_argument("--yes", action="store_true", help="ask nothing; the default if nobody can answer")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


def run(
    options: argparse.Namespace,
    environ: Mapping[str, str],
    out: TextIO,
    err: TextIO,
    ask: Callable[[str], str] | None = None,
    ports: Sequence[int] | None = None,
) -> int:
    """Write the file and return the exit status: 0, or 2 if nothing is written. `ask` None: ask nothing."""
    path = Path(options.config)
    if path.exists() and not options.force:
        print(f"sluice init: {path} exists; --force replaces it", file=err)
        return 2
    found = asyncio.run(find_engines(PORTS if ports is None else ports))
    for engine in found:
        print(f"found: {engine.base_url} ({engine.kind}): {', '.join(engine.models[:5])}", file=out)
    url = options.upstream or (found[0].base_url if found else _OPENAI)
    if ask is not None and options.upstream is None:
        url = ask(f"Address of the upstream, up to /v1 [{url}]: ") or url
    engine = next((one for one in found if one.base_url == url.rstrip("/")), None) or asyncio.run(_look(url))
    models = [options.model] if options.model else list(engine.models)
    if ask is not None and options.model is None:
        answer = ask(f"Models, separated by commas [{', '.join(models)}]: ")
        models = [name.strip() for name in answer.split(",") if name.strip()] or models
    if not models:
        print(f"sluice init: {url} lists no models; name one with --model", file=err)
        return 2
    team = options.team or (ask is not None and ask("May other machines call, with a key? [y/N]: ")[:1] in ("y", "Y"))
    key, digest = mint() if team else ("", "")
    path.write_text(_text(engine._replace(models=models), digest), encoding="utf-8")
    # What it takes from the environment may come later.
    loaded = load(path, {"OPENAI_API_KEY": "set-later", **environ})
    if loaded.config is None:
        path.unlink()
        for problem in loaded.problems:
            print(f"sluice init: {problem}", file=err)
        return 2
    print(f"written: {path}", file=out)
    if key:
        print(f"key: {key}\nGive it to your clients; it is shown only now, and the file has its hash.", file=out)
    if url == _OPENAI and not environ.get("OPENAI_API_KEY"):
        print(f"Put OPENAI_API_KEY=... into {path.parent / '.env'} first.", file=out)
    config = "" if options.config == "sluice.yaml" else f" --config {path}"
    print(f"next: sluice check --connect{config} && sluice serve{config}", file=out)
    return 0


async def find_engines(ports: Sequence[int]) -> list[Engine]:
    """The servers with OpenAI's API on these ports of this machine, in their order; other gateways of ours not."""
    async with _session() as session:
        found = await asyncio.gather(*(_models(session, f"http://127.0.0.1:{port}/v1") for port in ports))
    return [engine for engine in found if engine is not None and engine.models]


async def _look(url: str) -> Engine:
    """An upstream of the user's choice, with its models if it tells them without a key."""
    url = url.rstrip("/")
    if url == _OPENAI:
        return Engine(url, "openai", [_OPENAI_MODEL])
    async with _session() as session:
        return await _models(session, url) or Engine(url, "openai", [])


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    return aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)


async def _models(session: aiohttp.ClientSession, base_url: str) -> Engine | None:
    try:
        async with session.get(f"{base_url}/models", allow_redirects=False) as answer:
            body = await answer.content.read(_MAX_BYTES)
        listed = msgspec.json.decode(body, type=_Models).data if answer.status == 200 else []
    except (aiohttp.ClientError, OSError, ValueError, msgspec.MsgspecError):
        return None
    owners = {model.owned_by for model in listed}
    kind = next((_KINDS[owner] for owner in owners if owner in _KINDS), "openai")
    return None if _OURS in owners else Engine(base_url, kind, [model.id for model in listed])


def _text(engine: Engine, digest: str) -> str:
    name = "local" if urlsplit(engine.base_url).hostname in ("127.0.0.1", "localhost", "::1") else "provider"
    key = "\n    api_key: ${OPENAI_API_KEY}         # from the environment, or a .env file beside this one"
    models = "".join(f"  {_quoted(model)}: {{candidates: [{{upstream: {name}}}]}}\n" for model in engine.models)
    host = "0.0.0.0" if digest else "127.0.0.1"
    keys = f"keys:\n  - name: first                        # in logs, metrics and reports\n    key_sha256: {digest}\n"
    return (
        "# Every field: docs/configuration.md. `sluice check` finds mistakes; changes apply while it runs.\n"
        f"server: {{host: {host}, port: 8080}}\n"
        "admin: {port: 9464}                    # the page, on this machine only\n"
        f"{keys if digest else '# keys: []                             # with keys, server.host may be 0.0.0.0'}"
        f"{'' if digest else chr(10)}"
        f"upstreams:\n  {name}:\n    base_url: {_quoted(engine.base_url)}\n"
        f"    kind: {engine.kind}                       # openai, vllm, sglang or llamacpp"
        f"{key if engine.base_url == _OPENAI else ''}\n"
        f"models:                                # names that clients ask for\n{models}"
        "usage: {store: sqlite, path: ./sluice-usage.db}   # what every call used and cost\n"
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
