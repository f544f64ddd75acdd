"""The rules that keep the house in order: who may import whom, how long things may be, what may be caught."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = ["call", "money", "caller", "errors", "clock", "units", "log", "log_output", "metrics", "streams"]
WORDS += ["gauges", "gen_ai", "access_line", "trace"]
ROOTS = ["app", "accounts", "merging", "assembly", "routing", "pipeline", "retired", "reload", "process"]
ROOTS += ["run"]
ROOTS += ["catalogue", "pricing", "prices"]
ROOTS += ["tiers", "caching", "spans", "traces"]
ROOTS += ["workers", "worker", "worker_process", "dead_counters", "cli", "check", "__main__"]
ROOTS += ["top", "loadtest"]
ROOTS += ["training"]
ROOTS += ["report"]
# What the code of each part may know of the gateway. `gateway` itself holds the version only.
FLOORS = {
    **{word: ["", *WORDS] for word in WORDS},
    "complexity": ["", *WORDS, "complexity"],
    "policy": ["", *WORDS, "policy", "complexity"],
    "wire": ["", *WORDS, "wire"],
    "layers": ["", *WORDS, "complexity", "policy", "wire", "layers", "store"],
    "store": ["", *WORDS, "policy", "wire", "store"],
    "config": ["", *WORDS, "config"],
    "litellm": ["", *WORDS, "config", "litellm"],
    "edge": ["", *WORDS, "policy", "wire", "layers", "store", "edge"],
    "stack": ["", *WORDS, "policy", "wire", "layers", "store"],
}
# A part of `sluice check` that needs a socket and the config.
KNOWS_CONFIG_TOO = {"gateway.edge.connect"}
MAY_CATCH_ALL = {
    "gateway.edge.connection": "the handler itself has a bug; its client must see an end",
    "gateway.edge.serve": "a request ends here",
    "gateway.edge.streaming": "a stream ends here, in which its client must be told",
    "gateway.reload": "a reload ends here; the gateway serves on",
    "gateway.layers.batch": "a batch ends here; the next one must not suffer",
    "gateway.layers.cache_flight": "a flight ends here; its callers hear of it",
    "gateway.edge.sweep": "a watcher ends here; the clock goes on for the others",
}
SOCKETS = {"aiohttp", "socket", "ssl", "uvloop", "httptools", "aiohappyeyeballs"}


class Module(NamedTuple):
    """One file of the code."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        """The piece of the gateway that it belongs to, as the floors name them; `` for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]


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


def of(*parts: str) -> pytest.MarkDecorator:
    """Runs a test for each module of these parts of the gateway."""
    chosen = [one for one in modules("gateway").values() if one.part in parts]
    return pytest.mark.parametrize("module", [pytest.param(one, id=one.name) for one in chosen])


def test_every_part_of_the_gateway_has_its_floor():
    parts = {one.part for one in modules("gateway").values()} - {""}
    assert parts <= {*FLOORS, *ROOTS}
    assert {"call", "policy", "wire", "layers", "edge", "config", "stack", "app"} <= parts


@of(*FLOORS)
def test_imports_point_downwards(module: Module):
    allowed = FLOORS[module.part] + (["config"] if module.name in KNOWS_CONFIG_TOO else [])
    known = modules("gateway")
    seen = {known[name].part for name in imports(module.tree) if name in known}
    assert seen <= set(allowed)


@every("gateway")
def test_only_the_command_line_knows_the_backend(module: Module):
    assert "backend" not in packages(module.tree) or module.part == "cli"


@every("backend")
def test_the_backend_knows_nothing_of_the_gateway(module: Module):
    assert "gateway" not in packages(module.tree)


def test_no_import_goes_in_a_circle():
    known = modules("gateway") | modules("backend")
    graph = {name: imports(one.tree) & known.keys() for name, one in known.items()}
    TopologicalSorter(graph).prepare()  # a CycleError names the circle


@of("policy", "wire", "complexity", *WORDS)
def test_words_decisions_and_codecs_know_no_loop_and_no_socket(module: Module):
    assert not packages(module.tree) & {*SOCKETS, "asyncio", "threading", "selectors"}


@of("policy", "wire", "complexity")
def test_decisions_and_codecs_await_nothing_and_read_no_clock(module: Module):
    # Time zones speak datetime; its own clocks are `now` and `today`.
    banned = {"time"} if module.name == "gateway.policy.calendar" else {"time", "datetime"}
    assert not packages(module.tree) & banned
    attributes = {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
    assert not attributes & {"utcnow", "today"}
    assert "datetime.now" not in ast.unparse(module.tree)
    assert "gateway.clock" not in imports(module.tree)
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not any(isinstance(node, waits) for node in ast.walk(module.tree))


@of("policy", "wire", "complexity", "layers", *WORDS)
def test_chance_is_drawn_from_an_injected_generator(module: Module):
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            assert [alias.name for alias in node.names] == ["Random"]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            assert node.attr == "Random"
    assert not packages(module.tree) & {"secrets", "uuid"}


@every("gateway")
def test_only_one_file_reads_the_clock(module: Module):
    assert "time" not in packages(module.tree) or module.name == "gateway.clock"


@every("gateway")
def test_only_edges_and_roots_know_aiohttp(module: Module):
    assert "aiohttp" not in packages(module.tree) or module.part in ("edge", *ROOTS)


@of("layers", "store", "stack", "config")
def test_below_the_edges_there_is_no_socket(module: Module):
    assert not packages(module.tree) & SOCKETS


def test_the_stack_waits_for_nothing_itself():
    assert "asyncio" not in packages(modules("gateway")["gateway.stack"].tree)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/doubles").glob("*.py")), ids=lambda path: path.name)
def test_doubles_are_independent_witnesses(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {name for function in functions(tree) for name in packages(function)}
    outside = packages(ast.Module([node for node in tree.body if not _holds_functions(node)], []))
    assert not outside & {"gateway", "backend"}
    assert not inside & {"gateway", "backend"} or path.name == "gateway.py"


def _holds_functions(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@pytest.mark.parametrize("package", ["gateway", "backend", "bench", "tests"])
def test_every_file_is_named_after_its_concern(package: str):
    vague = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
    stems = {part.removesuffix(".py") for path in (ROOT / package).rglob("*.py") for part in path.parts}
    assert not vague & {word for stem in stems for word in stem.split("_")}


@every("gateway", "backend")
def test_a_file_has_one_concern(module: Module):
    assert len(module.path.read_text(encoding="utf-8").splitlines()) <= 300


@every("gateway", "backend")
def test_a_function_has_one_concern(module: Module):
    lengths = {one.name: (one.end_lineno or 0) - one.lineno + 1 for one in functions(module.tree)}
    assert {name: length for name, length in lengths.items() if length > 50} == {}


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
                node.id
                for node in ast.walk(handler.type or ast.Name("BaseException"))
                if isinstance(node, ast.Name)
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
        if isinstance(node, ast.ExceptHandler)
        and isinstance(node.type, ast.Name)
        and node.type.id == "Exception"
    }
    assert caught == set(MAY_CATCH_ALL)
