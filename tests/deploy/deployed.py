"""The files of deploy/, read for the tests: compose services, Dockerfiles, the variables that they name."""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = [DEPLOY / "compose.yml", DEPLOY / "compose.gpu.yml"]
ENV_EXAMPLE = ROOT / ".env.example"

_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-?+][^}]*)?\}")


def read_yaml(file: Path) -> Any:
    """The only document of a YAML file, merge keys resolved."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def services() -> dict[str, Any]:
    """Every service of every compose file, by name."""
    return {name: one for file in COMPOSE for name, one in read_yaml(file)["services"].items()}


def variables(file: Path) -> set[str]:
    """The names that `${NAME}` and its forms with defaults use in a file, comments left out."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return set(_VARIABLE.findall("\n".join(re.sub(r"(^|\s)#.*", "", line) for line in lines)))


def example_environment(file: Path = ENV_EXAMPLE) -> dict[str, str]:
    """What a copied `.env.example` sets."""
    return {name: value or "" for name, value in dotenv_values(file, interpolate=False).items()}


class Dockerfile:
    """The instructions of a Dockerfile in order, continuation lines joined."""

    def __init__(self, file: Path) -> None:
        text = re.sub(r"(?m)^\s*#.*\n", "", file.read_text(encoding="utf-8"))
        lines = re.sub(r"\\\n\s*", "", text).splitlines()
        self.instructions = [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]

    def all(self, instruction: str) -> list[str]:
        """The arguments of every such instruction."""
        return [rest for name, rest in self.instructions if name == instruction]

    def last(self, instruction: str) -> str:
        """The one that counts of those that replace each other."""
        return self.all(instruction)[-1]

    def command(self, instruction: str) -> list[str]:
        """CMD, ENTRYPOINT or the CMD of HEALTHCHECK in exec form."""
        rest = self.last(instruction)
        words: list[str] = json.loads(rest[rest.index("[") :])
        return words

    @property
    def bases(self) -> list[str]:
        """The images that the stages begin with."""
        return [line.partition(" ")[0] for line in self.all("FROM")]

    def environment(self) -> dict[str, str]:
        """What the last stage's ENV sets."""
        start = max(i for i, (name, _) in enumerate(self.instructions) if name == "FROM")
        pairs = [rest.split() for name, rest in self.instructions[start:] if name == "ENV"]
        return dict(pair.split("=", 1) for line in pairs for pair in line)
