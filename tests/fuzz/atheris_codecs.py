"""Coverage-guided fuzzing of the readers of bytes that others write.

`pip install atheris`, then `python tests/fuzz/atheris_codecs.py READER -runs=1000000`, where READER is one of
codec_fuzz.py's functions. A crashing input that libFuzzer leaves behind goes into seeds/ as NAME.codec.
"""

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found]

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]

with atheris.instrument_imports(include=["gateway.wire", "gateway.config", "yaml"]):
    from test_fuzzed_codecs import READERS, read

if __name__ == "__main__":
    reader, *options = sys.argv[1:]
    words = HERE / "words" / f"{READERS[reader]}.dict"
    found = tempfile.mkdtemp(prefix="fuzz-")
    atheris.Setup(
        [sys.argv[0], *options, f"-dict={words}", found, str(HERE / "seeds")],
        lambda data: read(reader, data, [len(data) // 3, 7]),
    )
    atheris.Fuzz()
