"""Coverage-guided fuzzing of what the lean transport reads.

`pip install atheris`, then `python tests/fuzz/atheris_answers.py -runs=1000000`. A crashing input that
libFuzzer leaves behind goes into seeds/ under a telling name.
"""

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found]

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent.parent)]

with atheris.instrument_imports(include=["gateway.edge"]):
    from answer_fuzz import check


def one(data: bytes) -> None:
    """The first byte says where to cut, the rest is the upstream's."""
    check(data[1:], [data[0], data[0] * 3] if data else [])


if __name__ == "__main__":
    atheris.Setup([*sys.argv, str(Path(__file__).parent / "seeds")], one)
    atheris.Fuzz()
