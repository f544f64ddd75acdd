"""`sluice check`: every problem of a config, one line each."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from gateway.assembly.cascade import checked
from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.show import as_yaml
from gateway.core.clock import unix
from gateway.pricing.resolver import Pricing


def run(path: Path, show: bool, connect: bool, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> int:
    """Check the file; gives the exit status: 0, or 2 when something is wrong.

    Problems and warnings go to `err`. `show` prints the effective config, `connect` asks every upstream.
    """
    loaded = checked(load(path, environ))
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=err)
    if loaded.config is None:
        for problem in loaded.problems:
            print(problem, file=err)
        return 2
    for warning in Pricing(unix).unknown(loaded.config):
        print(f"warning: {warning}", file=err)
    if show:
        # Flushed, so that what cannot be written is known before the verdict.
        print(as_yaml(loaded.config), end="", file=out, flush=True)
    reached = not connect or _connect(loaded.config, out, err)
    if not reached:
        return 2
    # Beside --show's YAML the verdict would spoil a redirected file.
    print(f"ok: {_counted(loaded.config)}", file=err if show else out)
    return 0


def _connect(config: Config, out: TextIO, err: TextIO) -> bool:
    # Only here, for the rest of the command needs no HTTP client.
    from gateway.cli.check_upstreams import ask_all

    findings = asyncio.run(ask_all(config))
    for finding in findings:
        print(finding, file=out if finding.good else err)
    return all(finding.good for finding in findings)


def _counted(config: Config) -> str:
    counts = {"upstream": len(config.upstreams), "model": len(config.models), "key": len(config.keys)}
    return ", ".join(f"{count} {thing}{'' if count == 1 else 's'}" for thing, count in counts.items())
