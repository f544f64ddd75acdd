"""The rules that keep the code in order: who may import whom, what may await, what may be caught."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Each package may import those named behind it, and itself. The order is topological: the table is a DAG.
MAY_IMPORT = {
    "core": "",
    "config": "core",
    "wire": "core",
    "telemetry": "core wire",
    "usage": "core redis telemetry wire",
    "redis": "core telemetry",
    "limits": "core redis telemetry usage",
    "cache": "core redis telemetry usage wire",
    "pricing": "config core usage",
    "stored": "core redis usage wire",
    "auth": "core limits telemetry",
    "admission": "core usage",
    "queueing": "admission core limits",
    "routing": "admission core queueing telemetry usage wire",
    "resilience": "core queueing routing wire",
    "context_window": "core resilience usage wire",
    "batching": "core queueing resilience telemetry usage wire",
    "inspector": "core wire",
    "page": "inspector",
    "batch_jobs": "core redis telemetry",
    "pipeline": "auth cache core limits queueing resilience telemetry usage",
    "http": "admission auth batch_jobs context_window core inspector limits page pipeline resilience telemetry "
    "usage wire",
    "reporting": "config core http pricing usage",
    "assembly": "admission auth batch_jobs batching cache config context_window core http inspector limits pipeline "
    "pricing queueing reporting resilience routing stored telemetry usage wire",
    "process": "assembly config core http inspector resilience telemetry usage",
    "cli": "assembly auth config core http inspector page pricing process redis reporting routing telemetry usage wire",
    "__main__": "cli",
}
TABLE = {package: set(known.split()) for package, known in MAY_IMPORT.items()}


# Files of the feature packages that wait or hold something that does. All others decide or encode: no event
# loop, no clock, no await. `layer.py`, `*_layer.py`, `*_store.py` and `single_flight.py` may always wait.
WAITS = {
    "batch_jobs/finisher.py": "writes the files of a batch",
    "batch_jobs/job_run.py": "sends lines",
    "batch_jobs/library.py": "reads and writes records",
    "batch_jobs/line_log.py": "writes results",
    "batch_jobs/runner.py": "follows batches",
    "batch_jobs/send_gate.py": "waits for room",
    "batch_jobs/store.py": "the stores' interfaces",
    "batch_jobs/traffic.py": "the interface of the gateway's own calls",
    "batching/merged_call.py": "sends one merged call and hands out its answer",
    "batching/split_lists.py": "sends the parts of a long list at once",
    "cache/embeddings.py": "fetches the missing items",
    "cache/fan_out.py": "wakes subscribers",
    "cache/lookup.py": "fetches what is missing",
    "cache/store.py": "the stores' interface",
    "limits/shared_account.py": "talks to Redis",
    "limits/shared_limits.py": "talks to Redis",
    "pipeline/gates.py": "wraps gates into a layer",
    "pricing/resolver.py": "loads the catalogue in a thread",
    "queueing/spill_timer.py": "a timer",
    "redis/command.py": "futures of replies",
    "redis/following_client.py": "the stores' connection",
    "redis/pipelined.py": "the connection",
    "redis/servers.py": "asks sentinels and nodes where to connect to",
    "resilience/attempt.py": "runs one attempt",
    "resilience/retry_loop.py": "runs further attempts",
    "routing/cascade/shadow.py": "background calls",
    "routing/cascade/shadow_file.py": "writes off the event loop",
    "telemetry/span_exporter.py": "exports in the background",
    "telemetry/tracing.py": "a layer",
    "usage/ledger.py": "flushes in the background",
    "usage/store.py": "the stores' interface",
}
ALWAYS_WAITS = ("/layer.py", "_layer.py", "_store.py", "/single_flight.py")
READS_DATES = {
    "core/budget_calendar.py": "time zones speak datetime; its clocks are arguments",
    "inspector/call_record.py": "formats timestamps",
    "pricing/catalogue.py": "prices have dates",
    "telemetry/access_log.py": "formats timestamps",
    "telemetry/logging.py": "formats timestamps",
}
PURE_PACKAGES = [one for one in TABLE if one not in {"http", "assembly", "process", "cli", "reporting", "__main__"}]

MAY_CATCH_ALL = {
    "gateway.http.server._aiohttp": "the handler itself has a bug; its client must see an end",
    "gateway.http.server.handler": "a request ends here",
    "gateway.http.server.line_calls": "a line of a batch ends here; the batch goes on",
    "gateway.http.server.streaming_response": "a stream ends here, and its client must see an error",
    "gateway.assembly.reload": "a reload ends here; the gateway serves on",
    "gateway.batching.layer": "a batch ends here; the next one must not suffer",
    "gateway.cache.single_flight": "a shared call ends here; its callers get the failure",
    "gateway.http.ticker": "a subscriber ends here; the clock goes on for the others",
}
SOCKETS = {"aiohttp", "socket", "ssl", "uvloop", "httptools", "aiohappyeyeballs"}


class Module(NamedTuple):
    """One file of the code."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package of the gateway that it belongs to; `` for the root itself."""
        return self.name.partition(".")[2].partition(".")[0]

    @property
    def file(self) -> str:
        """Its path below `gateway/`."""
        return "/".join(self.path.relative_to(ROOT / "gateway").parts)

    @property
    def waits(self) -> bool:
        """Whether it may await and know the event loop."""
        return self.file in WAITS or f"/{self.file}".endswith(ALWAYS_WAITS)


@cache
def modules(package: str) -> dict[str, Module]:
    """Every module of a package by its dotted name."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    return found


def imports(tree: ast.AST) -> set[str]:
    """Dotted names of all that is imported anywhere in it, a module of ours named in full."""
    known = {*modules("gateway"), *modules("backend")}
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide the floor"
            source = node.module or ""
            names |= {full if (full := f"{source}.{alias.name}") in known else source for alias in node.names}
    return names


def packages(tree: ast.AST) -> set[str]:
    """The top-level packages that it imports."""
    return {name.partition(".")[0] for name in imports(tree)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def every(*names: str) -> pytest.MarkDecorator:
    """Runs a test for each module of these packages."""
    return pytest.mark.parametrize(
        "module", [pytest.param(one, id=one.name) for name in names for one in modules(name).values()]
    )


def of(*packages: str) -> pytest.MarkDecorator:
    """Runs a test for each module of these packages of the gateway."""
    chosen = [one for one in modules("gateway").values() if one.package in packages]
    return pytest.mark.parametrize("module", [pytest.param(one, id=one.name) for one in chosen])


def test_nothing_lies_loose_at_the_root():
    assert {path.name for path in (ROOT / "gateway").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_every_package_is_in_the_table_and_the_table_is_a_dag():
    assert {one.package for one in modules("gateway").values()} - {""} == TABLE.keys()
    assert set().union(*TABLE.values()) <= TABLE.keys()
    TopologicalSorter(TABLE).prepare()  # a CycleError names the circle


@of(*TABLE)
def test_packages_import_in_one_direction(module: Module):
    known = modules("gateway")
    seen = {known[name].package for name in imports(module.tree) if name in known}
    assert seen - {"", module.package} <= TABLE[module.package]


def test_the_table_allows_no_more_than_is_used():
    known = modules("gateway")
    used: dict[str, set[str]] = {}
    for one in known.values():
        targets = {known[name].package for name in imports(one.tree) if name in known}
        used.setdefault(one.package, set()).update(targets - {"", one.package})
    assert {package: used[package] for package in TABLE} == TABLE


@every("gateway")
def test_the_client_side_knows_nothing_of_the_server_side(module: Module):
    if module.name.startswith("gateway.http.client"):
        assert not any(name.startswith("gateway.http.server") for name in imports(module.tree))


@every("gateway")
def test_only_the_command_line_knows_the_backend(module: Module):
    assert "backend" not in packages(module.tree) or module.package == "cli"


@every("backend")
def test_the_backend_knows_nothing_of_the_gateway(module: Module):
    assert "gateway" not in packages(module.tree)


def test_no_import_goes_in_a_circle():
    known = modules("gateway") | modules("backend")
    graph = {name: imports(one.tree) & known.keys() for name, one in known.items()}
    TopologicalSorter(graph).prepare()  # a CycleError names the circle


@of(*PURE_PACKAGES)
def test_what_decides_and_encodes_knows_no_event_loop(module: Module):
    if not module.waits:
        assert not packages(module.tree) & {*SOCKETS, "asyncio", "threading", "selectors"}
        waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
        assert not any(isinstance(node, waits) for node in ast.walk(module.tree))


def test_whatever_is_listed_as_waiting_does_wait():
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    files = {one.file: one.tree for one in modules("gateway").values()}
    for file in WAITS:
        tree = files[file]
        assert "asyncio" in packages(tree) or any(isinstance(node, waits) for node in ast.walk(tree)), file


@of(*PURE_PACKAGES)
def test_what_decides_and_encodes_reads_no_clock(module: Module):
    if module.waits or module.name == "gateway.core.clock":
        return
    assert not packages(module.tree) & ({"time"} if module.file in READS_DATES else {"time", "datetime"})
    attributes = {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
    assert not attributes & {"utcnow", "today"}
    assert "datetime.now" not in ast.unparse(module.tree)
    assert "gateway.core.clock" not in imports(module.tree) or module.file in READS_DATES


@of(*PURE_PACKAGES)
def test_chance_is_drawn_from_an_injected_generator(module: Module):
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            assert [alias.name for alias in node.names] == ["Random"]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr == "Random"
    assert not packages(module.tree) & {"secrets", "uuid"}


@every("gateway")
def test_only_one_file_reads_the_clock(module: Module):
    assert "time" not in packages(module.tree) or module.name == "gateway.core.clock"


@every("gateway")
def test_only_http_assembly_and_commands_know_aiohttp(module: Module):
    assert "aiohttp" not in packages(module.tree) or module.package in {"http", "assembly", "process", "cli"}


@of(*PURE_PACKAGES)
def test_below_http_there_is_no_socket(module: Module):
    assert not packages(module.tree) & SOCKETS


def test_the_stack_waits_for_nothing_itself():
    assert "asyncio" not in packages(modules("gateway")["gateway.pipeline.stack"].tree)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/doubles").glob("*.py")), ids=lambda path: path.name)
def test_doubles_are_independent_witnesses(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {name for function in functions(tree) for name in packages(function)}
    outside = packages(ast.Module([node for node in tree.body if not _holds_functions(node)], []))
    assert not outside & {"gateway", "backend"}
    assert not inside & {"gateway", "backend"} or path.name == "gateway.py"


def _holds_functions(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@pytest.mark.parametrize("package", ["gateway", "backend", "benchmarks", "tests"])
def test_every_file_is_named_after_its_concern(package: str):
    vague = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
    stems = {part.removesuffix(".py") for path in (ROOT / package).rglob("*.py") for part in path.parts}
    assert not vague & {word for stem in stems for word in stem.split("_")}


def test_the_longest_files_and_functions_are_printed(capsys: pytest.CaptureFixture[str]):
    """No law of size: cohesion decides. The ten longest are shown, so that growth is seen."""
    every_module = [*modules("gateway").values(), *modules("backend").values()]
    files = sorted(((len(one.path.read_text("utf-8").splitlines()), one.name) for one in every_module), reverse=True)
    lengths = sorted(
        (
            ((one.end_lineno or 0) - one.lineno + 1, f"{module.name}.{one.name}")
            for module in every_module
            for one in functions(module.tree)
        ),
        reverse=True,
    )
    with capsys.disabled():
        print("\nlongest files:", ", ".join(f"{name} {size}" for size, name in files[:10]))
        print("longest functions:", ", ".join(f"{name} {size}" for size, name in lengths[:10]))
    assert files
    assert lengths


def test_no_two_public_classes_share_a_name():
    places: dict[str, list[str]] = {}
    for one in modules("gateway").values():
        for node in one.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(one.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@every("gateway", "backend")
def test_what_is_public_is_documented(module: Module):
    assert ast.get_docstring(module.tree), "the module"
    assert list(undocumented(module.tree.body)) == []


def undocumented(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names of public functions, classes and methods without a docstring."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in undocumented(node.body))


@every("gateway", "backend")
def test_only_where_a_request_or_a_task_ends_is_everything_caught(module: Module):
    for handler in ast.walk(module.tree):
        if isinstance(handler, ast.ExceptHandler):
            caught = {
                node.id for node in ast.walk(handler.type or ast.Name("BaseException")) if isinstance(node, ast.Name)
            }
            if "Exception" in caught:
                assert module.name in MAY_CATCH_ALL, f"line {handler.lineno}"
            if "BaseException" in caught:  # to clean up, never to go on
                assert _raises_again(handler), f"line {handler.lineno}"


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_whoever_may_catch_everything_still_does():
    caught = {
        name
        for name, one in modules("gateway").items()
        for node in ast.walk(one.tree)
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception"
    }
    assert caught == set(MAY_CATCH_ALL)
