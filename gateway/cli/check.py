"""`sluice check`: reports every problem of a config, one line each."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from gateway.assembly.cascade import checked
from gateway.cli.wrapped import say
from gateway.config.json_schema import json_schema
from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.show import as_yaml
from gateway.core.clock import unix
from gateway.pricing.resolver import Pricing


def run(path: Path, show: bool, connect: bool, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> int:
    """Check the file and return the exit status: 0, or 2 if there is any problem.

    Problems and warnings go to `err`. `show` prints the effective config, `connect` asks every upstream, every
    identity provider and Redis.
    """
    loaded = checked(load(path, environ))
    for warning in loaded.warnings:
        say(f"warning: {warning}", err)
    if loaded.config is None:
        for problem in loaded.problems:
            say(problem, err)
        return 2
    for warning in Pricing(unix).warnings(loaded.config):
        say(f"warning: {warning}", err)
    if show:
        # Flushed, so that a failure to write ends the command before it says "ok".
        print(as_yaml(loaded.config), end="", file=out, flush=True)
    reached = not connect or _connect(loaded.config, out, err)
    if not reached:
        return 2
    # On stdout this line would spoil the redirected YAML of --show.
    print(f"ok: {_summary(loaded.config)}", file=err if show else out)
    return 0


def print_schema(out: TextIO) -> int:
    """Print the JSON Schema of the config file and return the exit status."""
    print(json.dumps(json_schema(), indent=2), file=out)
    return 0


def _connect(config: Config, out: TextIO, err: TextIO) -> bool:
    # Imported late, because the rest of the command needs no HTTP client.
    from gateway.cli.check_providers import ProviderFinding, ask_providers
    from gateway.cli.check_redis import ask_redis
    from gateway.cli.check_upstreams import Finding, ask_all

    findings: list[Finding | ProviderFinding] = [*asyncio.run(ask_all(config)), *asyncio.run(ask_providers(config))]
    for finding in findings:
        say(finding, out if finding.good else err)
    wrong = asyncio.run(ask_redis(config.redis)) if config.redis is not None else None
    if config.redis is not None:
        say(f"redis: {wrong or 'ok'}", err if wrong else out)
    return wrong is None and all(finding.good for finding in findings)


def _summary(config: Config) -> str:
    counts = {"upstream": len(config.upstreams), "model": len(config.models), "key": len(config.keys)}
    return ", ".join(f"{count} {thing}{'' if count == 1 else 's'}" for thing, count in counts.items())
