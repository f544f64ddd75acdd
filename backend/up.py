"""`sluice up`: the engine and the gateway together, until Ctrl-C."""

import argparse
import ipaddress
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from backend import engine, install, ports, processes, templates
from backend.errors import CannotRunError, Problem, Stopped
from backend.paths import cache_folder, make_folder, remove_old_logs
from backend.prepare import Prepared, prepare
from backend.progress import Progress
from backend.signals import StopSignals

_GATEWAY_BOUND_S = 30.0
_GATEWAY_GRACE_S = 10.0  # longer than its drain of 5 s
_INTERRUPTED = 130


@dataclass(frozen=True)
class Ports:
    """Where everything listens; `embed` is None without the embedding model."""

    host: str
    gateway: int
    admin: int
    chat: int
    embed: int | None


def main(argv: Sequence[str]) -> int:
    """Run `sluice up` with these options and return the exit status.

    0: prepared, or stopped by Ctrl-C or SIGTERM once it was ready; 1: failed; 2: wrong usage; 130: stopped
    before it was ready.
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
            print(f"The local engine cannot run here: {problem}.\n{templates.WITHOUT_ENGINE}", file=sys.stderr)
            return 1
        except Problem as problem:
            print(f"sluice up: {problem}", file=sys.stderr)
            return 1
        finally:
            running.stop(signals)


class Running:
    """The started processes. They stop in reverse order: the gateway first, then the engines."""

    def __init__(self) -> None:
        self.ready = False
        self.children: list[tuple[processes.Child, float]] = []

    def add(self, child: processes.Child, grace_s: float) -> processes.Child:
        """Own a child process, which gets `grace_s` seconds to end after SIGTERM."""
        self.children.append((child, grace_s))
        return child

    def stop(self, signals: StopSignals) -> None:
        """Stop all of them and wait; one more signal meanwhile kills them."""
        before = signals.count
        for child, grace_s in reversed(self.children):
            child.stop(grace_s, lambda: signals.count > before)


def _run(options: argparse.Namespace, cache: Path, progress: Progress, signals: StopSignals, running: Running) -> None:
    chosen = choose_ports(options)
    remove_old_logs(cache / "logs", time.time())
    prepared = prepare(cache, install.flavour(), progress, signals)
    if options.prepare_only:
        print("Everything is prepared.", flush=True)
        return
    _start_engines(chosen, prepared, cache, progress, signals, running)
    _start_gateway(chosen, cache, progress, signals, running)
    engine_ports = {engine.CHAT: chosen.chat} | ({engine.EMBED: chosen.embed} if chosen.embed else {})
    running.ready = True
    print(
        templates.ready(
            chosen.host,
            chosen.gateway,
            chosen.admin,
            engine_ports,
            str(cache / "logs"),
            str(_config_path(cache, chosen)),
            _command(),
        ),
        flush=True,
    )
    while True:
        signals.wait(0.5)
        for child, _ in running.children:
            if child.process.poll() is not None:
                raise processes.died(child)


def _start_engines(
    chosen: Ports, prepared: Prepared, cache: Path, progress: Progress, signals: StopSignals, running: Running
) -> None:
    waiting: dict[processes.Child, Callable[[], bool]] = {}
    for model, port in ((engine.CHAT, chosen.chat), (engine.EMBED, chosen.embed)):
        if port is not None:
            child = running.add(engine.start(prepared, model, port, cache), engine.STOP_GRACE_S)
            waiting[child] = _health_check("127.0.0.1", port)
    label = "Starting the engine (about a minute)"
    processes.wait_ready(waiting, progress, signals, label, engine.READY_BOUND_S)


def _config_path(cache: Path, chosen: Ports) -> Path:
    """The gateway's config. The port is part of its name, so that two gateways do not share one."""
    return cache / "up" / f"sluice-{chosen.gateway}.yaml"


def _command() -> str:
    """How to call `sluice` in a terminal of the same folder."""
    script = Path(sys.executable).with_name("sluice")
    if not script.exists() or shutil.which("sluice") == str(script):
        return "sluice"
    try:
        return str(script.relative_to(Path.cwd()))
    except ValueError:
        return str(script)


def _start_gateway(chosen: Ports, cache: Path, progress: Progress, signals: StopSignals, running: Running) -> None:
    config = _config_path(cache, chosen)
    make_folder(config.parent)
    config.write_text(templates.config(chosen.host, chosen.gateway, chosen.admin, chosen.chat, chosen.embed))
    log = cache / "logs" / f"gateway-{chosen.gateway}.log"
    # -P, so that files in the current folder do not shadow what the gateway imports.
    command = [sys.executable, "-P", "-m", "gateway", "serve", "--config", str(config)]
    # All upstreams are on this machine and must not be reached through the environment's proxy.
    child = running.add(processes.start("the gateway", command, log, {"no_proxy": "*"}), _GATEWAY_GRACE_S)
    waiting = {child: _health_check(chosen.host, chosen.gateway)}
    processes.wait_ready(waiting, progress, signals, "Starting the gateway", _GATEWAY_BOUND_S)


def _health_check(host: str, port: int) -> Callable[[], bool]:
    return lambda: engine.healthy(host, port)


def choose_ports(options: argparse.Namespace) -> Ports:
    """Choose every port; `Problem` names an occupied one and the option that changes it.

    Clients know the gateway's ports, so those never change by themselves; the engine's default may. 0 takes a
    free port.
    """
    host, used = options.host, set[int]()

    def choose(preferred: int, on: str, option: str, may_move: bool) -> int:
        if preferred and preferred not in used and ports.free(on, preferred):
            port: int = preferred
        elif preferred and not may_move:
            raise Problem(f"port {preferred} on {on} is taken; choose another with {option}, 0 takes a free one")
        else:
            port = ports.any_free(on, used)
            if preferred:
                print(f"Port {preferred} is taken; the engine takes {port}.", flush=True)
        used.add(port)
        return port

    gateway = choose(options.port, host, "--port", False)
    admin = choose(options.admin_port, "127.0.0.1", "--admin-port", False)
    requested = options.engine_port
    preferred = engine.DEFAULT_PORT if requested is None else requested
    chat = choose(preferred, "127.0.0.1", "--engine-port", requested is None)
    following = preferred + 1 if 0 < preferred < 65535 else 0
    embed = choose(following, "127.0.0.1", "--engine-port", True) if options.embeddings else None
    return Ports(host, gateway, admin, chat, embed)


class _Parser(argparse.ArgumentParser):
    """Reports a mistake in one line, without the usage, as the gateway's commands do."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.splitlines())}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sluice up", description="Run a real local engine and the gateway together.")
    parser.add_argument("--embeddings", action="store_true", help="serve an embedding model too (embed)")
    parser.add_argument("--host", type=_loopback, default="127.0.0.1", help="the gateway's loopback address")
    parser.add_argument("--port", type=_port, default=8080, help="the gateway's port (8080)")
    parser.add_argument("--admin-port", type=_port, default=9464, help="the admin port (9464)")
    parser.add_argument("--engine-port", type=_port, help="the engine's port (8000, else a free one)")
    parser.add_argument("--prepare-only", action="store_true", help="install and prepare, start nothing")
    return parser


def _port(text: str) -> int:
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
                "to be reachable from elsewhere, write a config with keys and use `sluice serve`"
            )
    return text
