"""Coverage-guided fuzzing of what the lean transport reads.

`pip install atheris`, then `python tests/fuzz/atheris_answers.py -runs=1000000`. A crashing input that
libFuzzer leaves behind goes into seeds/ under a telling name.
"""

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

HERE = Path(__file__).parent
WORDS = [
    "HTTP/1.1 200 OK\\x0d\\x0a",
    "content-length: ",
    "transfer-encoding: chunked\\x0d\\x0a",
    "connection: close\\x0d\\x0a",
    "\\x0d\\x0a\\x0d\\x0a",
    "0\\x0d\\x0a\\x0d\\x0a",
    "HTTP/1.1 100 Continue\\x0d\\x0a\\x0d\\x0a",
]

sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

with atheris.instrument_imports(include=["gateway.edge"]):
    from answer_fuzz import check


def one(data: bytes) -> None:
    """Whole, and in three pieces."""
    check(data, [len(data) // 3, 7])


if __name__ == "__main__":
    found = Path(tempfile.mkdtemp(prefix="fuzz-"))
    words = found / "words.dict"
    words.write_text("".join(f'"{word}"\n' for word in WORDS))
    atheris.Setup([*sys.argv, f"-dict={words}", str(found), str(HERE / "seeds")], one)
    atheris.Fuzz()
