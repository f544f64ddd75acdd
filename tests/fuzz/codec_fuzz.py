"""What may never happen with bytes that others write, one function for each reader of them.

For Hypothesis, atheris and the kept seeds alike. Python's own json is the witness of what a body says, and of
what splicing leaves as it was; it keeps the last of two equal keys, as every engine does.
"""

import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import yaml
from kit.heads import head_of

from gateway.config.load import load
from gateway.config.show import as_yaml
from gateway.core.errors import INVALID_JSON, INVALID_VALUE, Rejection
from gateway.wire.http import host_check
from gateway.wire.http.redaction import Redactor
from gateway.wire.http.retry_after import LONGEST_S, retry_after
from gateway.wire.json import splice
from gateway.wire.json.limits import MAX_DEPTH
from gateway.wire.openai.chunks import ChunkReader, InvalidChunk
from gateway.wire.openai.request_limits import ENGINE_FIELDS
from gateway.wire.openai.sse import EventSplitter, EventTooLarge

_NAME = b'"another \\u00e9"'
_SECRET = "up-key-9-secret"
_masker = Redactor([_SECRET])
_folder = Path(tempfile.mkdtemp(prefix="fuzz-config-"))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """These bytes, cut at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


def events(data: bytes, cuts: list[int]) -> None:
    """The splitter: the same events however the bytes are cut, no byte of them changed, none made up."""
    whole, cut = _events([data]), _events(pieces(data, cuts))
    assert cut == whole, "the events depend on the cuts"
    assert data.removeprefix(b"\xef\xbb\xbf").startswith(b"".join(whole))


def _events(given: list[bytes]) -> list[bytes]:
    splitter, found = EventSplitter(limit=1 << 16), []
    try:
        for piece in given:
            found += splitter.feed(piece)
    except EventTooLarge:
        return []
    return found + splitter.end()


def chunks(data: bytes, cuts: list[int]) -> None:
    """The reader of a stream: the same bytes for the client however they came, or the same refusal."""
    assert _relayed(pieces(data, cuts)) == _relayed([data]), "what is relayed depends on the cuts"


def _relayed(given: list[bytes]) -> tuple[bytes, bool]:
    reader, out = ChunkReader("m", b'"m"'), b""
    try:
        for piece in given:
            out += reader.feed(piece)
        return out + reader.end(), True
    except (InvalidChunk, EventTooLarge):
        return b"", False


def request(data: bytes) -> None:
    """The peek: an answer or a refusal, and what it says is what the body says to everybody else."""
    seen = head_of(data)
    if isinstance(seen, Rejection):
        assert seen.kind in (INVALID_JSON, INVALID_VALUE)
        return
    body = json.loads(data, parse_constant=_no_constant)
    assert isinstance(body, dict)
    assert (body["model"], bool(body.get("stream"))) == (seen.model, seen.stream)
    assert set(seen.engine_fields) == {field for field in ENGINE_FIELDS if body.get(field) is not None}
    assert _depth(body) <= MAX_DEPTH
    for field in ("temperature", "top_p", "n", "max_tokens"):
        value = body.get(field)
        assert not isinstance(value, float) or math.isfinite(value)
    spans = splice.model_spans(data)
    renamed = json.loads(splice.replace(data, spans, _NAME))
    assert renamed == {**body, "model": json.loads(_NAME)}


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} was taken for JSON")


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def wait(data: bytes) -> None:
    """Retry-After: no advice, or a time that somebody may wait."""
    text, _, date = data.decode("latin-1").partition("\n")
    for headers in ({"retry-after": text, "date": date}, {"retry-after-ms": text, "retry-after": date}):
        seconds = retry_after(headers, 1_790_000_000)
        assert seconds is None or 0 < seconds <= LONGEST_S


def head(data: bytes) -> None:
    """A head: taken or not; what is taken has one host only."""
    target, _, host = data.decode("latin-1").partition("\n")
    refusal = host_check.check("POST", target, {"host": host})
    if refusal is None:
        assert not set(host) & set('/?#@ \t\\"<>^`{|}')
        if "://" in target.split("/", 1)[0] + "//":
            authority = target.partition("://")[2].partition("/")[0]
            assert "@" not in authority


def message(data: bytes) -> None:
    """The mask: whatever stands around it, a known secret does not come through."""
    text = data.decode("utf-8", "replace")
    at = len(text) // 2
    assert _SECRET not in _masker(text[:at] + _SECRET + text[at:])


def config(data: bytes) -> None:
    """The config: read, or refused with reasons; what was read can be shown and read again."""
    file = _folder / "sluice.yaml"
    file.write_bytes(data)
    loaded = load(file, {"KEY": _SECRET})
    assert (loaded.config is None) == bool(loaded.problems)
    told = "".join(f"{problem.path}{problem.message}" for problem in loaded.problems)
    assert _SECRET not in told
    assert told.isprintable()
    if loaded.config is not None:
        assert isinstance(yaml.safe_load(as_yaml(loaded.config)), dict)
