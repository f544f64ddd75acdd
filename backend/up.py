"""`sluice up`: the engine and the gateway together, until Ctrl-C."""

import argparse
import ipaddress
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from backend import engine, install, ports, processes
from backend import templates as messages
from backend.errors import CannotRunError, Problem, Stopped
from backend.paths import cache_folder, forget_old_logs, make_folder
from backend.prepare import Prepared, prepare
from backend.progress import Progress
from backend.signals import StopSignals

_GATEWAY_BOUND_S = 30.0
_GATEWAY_GRACE_S = 10.0  # its own drain, of 5 s, fits in
_INTERRUPTED = 130


@dataclass(frozen=True)
class Ports:
    """Where everything listens; `embed` is None without an embedding model."""

    host: str
    gateway: int
    admin: int
    chat: int
    embed: int | None


def main(argv: Sequence[str]) -> int:
    """Run `sluice up` with these options; gives the exit status.

    0: stopped by Ctrl-C or SIGTERM after it was ready, or all prepared; 1: it failed; 2: wrong usage;
    130: stopped before it was ready.
    """
    options = _parser().parse_args(argv)
    progress = Progress(sys.stdout)
    running = Running()
    with StopSignals() as signals:
        try:
            _run(options, cache_folder(), progress, signals, running)
            return 0
        except Stopped:
            print("\nStopping.", flush=True)
            return 0 if running.ready else _INTERRUPTED
        except CannotRunError as problem:
            print(f"The local engine cannot run here: {problem}.\n{messages.WITHOUT_ENGINE}", file=sys.stderr)
            return 1
        except Problem as problem:
            print(f"sluice up: {problem}", file=sys.stderr)
            return 1
        finally:
            running.stop(signals)


class Running:
    """The started processes, ended in the opposite order: the gateway first, then the engines."""

    def __init__(self) -> None:
        self.ready = False
        self.children: list[tuple[processes.Child, float]] = []

    def add(self, child: processes.Child, grace_s: float) -> processes.Child:
        """Take over a child; it gets `grace_s` to end by itself."""
        self.children.append((child, grace_s))
        return child

    def stop(self, signals: StopSignals) -> None:
        """End all and wait for them; one more signal while this goes on ends them at once."""
        seen = signals.count
        for child, grace_s in reversed(self.children):
            child.stop(grace_s, lambda: signals.count > seen)


def _run(
    options: argparse.Namespace, cache: Path, progress: Progress, signals: StopSignals, running: Running
) -> None:
    at = choose_ports(options)
    forget_old_logs(cache / "logs", time.time())
    prepared = prepare(cache, install.flavour(), progress, signals)
    if options.prepare_only:
        print("Everything is prepared.", flush=True)
        return
    _start_engines(at, prepared, cache, progress, signals, running)
    _start_gateway(at, cache, progress, signals, running)
    engine_ports = {engine.CHAT: at.chat} | ({engine.EMBED: at.embed} if at.embed else {})
    running.ready = True
    print(messages.ready(at.host, at.gateway, at.admin, engine_ports, str(cache / "logs")), flush=True)
    while True:
        signals.wait(0.5)
        for child, _ in running.children:
            if child.process.poll() is not None:
                raise processes.died(child)


def _start_engines(
    at: Ports, prepared: Prepared, cache: Path, progress: Progress, signals: StopSignals, running: Running
) -> None:
    waiting: dict[processes.Child, Callable[[], bool]] = {}
    for model, port in ((engine.CHAT, at.chat), (engine.EMBED, at.embed)):
        if port is not None:
            child = running.add(engine.start(prepared, model, port, cache), engine.STOP_GRACE_S)
            waiting[child] = _asker("127.0.0.1", port)
    label = "Starting the engine (about a minute)"
    processes.wait_ready(waiting, progress, signals, label, engine.READY_BOUND_S)


def _start_gateway(
    at: Ports, cache: Path, progress: Progress, signals: StopSignals, running: Running
) -> None:
    # Named after the port, so that two gateways side by side do not share a config.
    config = make_folder(cache / "up") / f"sluice-{at.gateway}.yaml"
    config.write_text(messages.config(at.host, at.gateway, at.admin, at.chat, at.embed))
    log = cache / "logs" / f"gateway-{at.gateway}.log"
    # -P: files in the user's current folder must not shadow what the gateway imports.
    command = [sys.executable, "-P", "-m", "gateway", "serve", "--config", str(config)]
    # All its upstreams are on this machine: a proxy that the environment names must not be asked for them.
    child = running.add(processes.start("the gateway", command, log, {"no_proxy": "*"}), _GATEWAY_GRACE_S)
    waiting = {child: _asker(at.host, at.gateway)}
    processes.wait_ready(waiting, progress, signals, "Starting the gateway", _GATEWAY_BOUND_S)


def _asker(host: str, port: int) -> Callable[[], bool]:
    return lambda: engine.healthy(host, port)


def choose_ports(options: argparse.Namespace) -> Ports:
    """Settle every port, or raise a `Problem` that names the taken one and the option to change it.

    The gateway's ports are what clients are told, so they never change behind the user's back; the engine's
    default may. 0 takes a free port.
    """
    host, used = options.host, set[int]()

    def settle(wanted: int, on: str, option: str, may_move: bool) -> int:
        if wanted and wanted not in used and ports.free(on, wanted):
            chosen = wanted
        elif wanted and not may_move:
            raise Problem(f"port {wanted} on {on} is taken; choose another with {option}, 0 takes a free one")
        else:
            chosen = ports.any_free(on, used)
            if wanted:
                print(f"Port {wanted} is taken; the engine takes {chosen}.", flush=True)
        used.add(chosen)
        return chosen

    gateway = settle(options.port, host, "--port", False)
    admin = settle(options.admin_port, "127.0.0.1", "--admin-port", False)
    given = options.engine_port
    wanted = engine.DEFAULT_PORT if given is None else given
    chat = settle(wanted, "127.0.0.1", "--engine-port", given is None)
    following = wanted + 1 if 0 < wanted < 65535 else 0
    embed = settle(following, "127.0.0.1", "--engine-port", True) if options.embeddings else None
    return Ports(host, gateway, admin, chat, embed)


class LineParser(argparse.ArgumentParser):
    """Says a mistake in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.splitlines())}\n")


def _parser() -> argparse.ArgumentParser:
    parser = LineParser(prog="sluice up", description="Run a real local engine and the gateway together.")
    parser.add_argument("--embeddings", action="store_true", help="serve an embedding model too (embed)")
    parser.add_argument("--host", type=_loopback, default="127.0.0.1", help="the gateway's loopback address")
    parser.add_argument("--port", type=port_number, default=8080, help="the gateway's port (8080)")
    parser.add_argument("--admin-port", type=port_number, default=9464, help="the admin port (9464)")
    parser.add_argument("--engine-port", type=port_number, help="the engine's port (8000, else a free one)")
    parser.add_argument("--prepare-only", action="store_true", help="install and prepare, start nothing")
    return parser


def port_number(text: str) -> int:
    """The type of an option that names a port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return int(text)


def _loopback(text: str) -> str:
    if text != "localhost":
        try:
            loopback = ipaddress.ip_address(text).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise argparse.ArgumentTypeError(
                "without keys the gateway listens on loopback only (127.0.0.1, ::1); "
                "for others write a config with keys and use `sluice serve`"
            )
    return text
