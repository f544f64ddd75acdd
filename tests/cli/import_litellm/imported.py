"""Runs `sluice import-litellm` on a config, and loads what it wrote."""

import io
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gateway.cli.import_litellm.run import run
from gateway.config.load import Loaded, load

CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.yaml"))


class Imported(NamedTuple):
    """Exit status, what was written, as text and read as YAML, and the remarks by their places."""

    status: int
    text: str
    config: dict[str, Any]
    notes: dict[str, str]
    needs: list[str]

    def load(self, folder: Path) -> Loaded:
        """As `sluice check` reads it, with a value for every variable that it was said to need."""
        file = folder / "sluice.yaml"
        file.write_text(self.text, encoding="utf-8")
        values = {name: f"{number:064}" for number, name in enumerate(self.needs)}
        addresses = {name: "http://127.0.0.1:8000/v1" for name in self.needs if name.endswith("BASE")}
        redis = {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": "6379", "REDIS_URL": "redis://127.0.0.1:6379"}
        return load(file, values | addresses | {name: redis[name] for name in self.needs if name in redis})


def imported(file: Path) -> Imported:
    """The import of a file."""
    out, err = io.StringIO(), io.StringIO()
    status = run(str(file), None, out=out, err=err)
    *remarks, last = err.getvalue().splitlines()
    _, _, needs = last.partition("; needs ")
    notes = dict(line.split(": ", 1) for line in remarks)
    return Imported(
        status,
        out.getvalue(),
        yaml.safe_load(out.getvalue()) or {},
        notes,
        needs.split(", ") if needs else [],
    )


def shipped(name: str) -> Imported:
    """The import of one of the configs that stand beside."""
    return imported(Path(__file__).parent / "configs" / f"{name}.yaml")


def written(folder: Path, text: str) -> Imported:
    """The import of a text."""
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return imported(file)
