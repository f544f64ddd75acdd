"""The folders of the other proxies, their installation, and how a contender finds its program."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

from benchmarks.contender import ROOT, Contender

VENV = ROOT / ".venv-rivals"
NODE = VENV / "npm"
PINS = Path(__file__).parent
AGAIN = "python -m benchmarks.competitors"


class Rival(Contender):
    """A competing program: it sees neither this process's environment nor its home."""

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder)}


class FromPyPI(Rival):
    """A competitor in the competitors' virtual environment."""

    package = ""  # its name there
    command_name = ""  # of its command; the package's where it is empty

    @classmethod
    def version(cls) -> str:
        folders = [str(folder) for folder in VENV.glob("lib/python3*/site-packages")]
        return next((found.version for found in distributions(name=cls.package, path=folders)), "")

    @classmethod
    def missing(cls) -> str:
        return "" if cls.version() else AGAIN

    @property
    def program(self) -> str:
        """The command's file."""
        return str(VENV / "bin" / (self.command_name or self.package))


class FromNpm(Rival):
    """A competitor in the competitors' node folder."""

    package = ""

    @classmethod
    def home(cls) -> Path:
        """The package's folder."""
        return NODE / "node_modules" / cls.package

    @classmethod
    def version(cls) -> str:
        file = cls.home() / "package.json"
        return str(json.loads(file.read_text())["version"]) if file.exists() else ""

    @classmethod
    def missing(cls) -> str:
        if not shutil.which("node"):
            return f"apt-get install nodejs npm, then {AGAIN}"
        return "" if cls.version() else AGAIN


def from_pypi() -> None:
    """Recreate the environment. Raises CalledProcessError if pip fails."""
    pins = PINS / "pypi.txt"
    count = len(re.findall(r"^\S+==", pins.read_text(), re.MULTILINE))
    print(f"Installing {count} packages of PyPI into {VENV.name} ...", file=sys.stderr)
    venv.create(VENV, clear=True, with_pip=True)
    pip = [str(VENV / "bin" / "pip"), "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", str(pins)], check=True)


def from_npm() -> None:
    """Recreate the node folder without running any package's script.

    Raises OSError without npm, CalledProcessError if it fails.
    """
    print(f"Installing the packages of npm into {NODE.relative_to(ROOT)} ...", file=sys.stderr)
    NODE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINS / name, NODE)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    subprocess.run(npm, cwd=NODE, check=True, stdout=subprocess.DEVNULL)
