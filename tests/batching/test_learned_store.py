"""The file of found merge modes: what survives in it, and that nothing in it or around it ends serving."""

import json
import logging
import os
from pathlib import Path

import pytest

from gateway.batching.experiment import GREEDY, LOCKSTEP, OFF, Learned
from gateway.batching.learned_store import Entry, LearnedStore, decode, encode

FOUND = Learned(LOCKSTEP, 0.4, 64.0, 120.0)
CHAT = Entry("m", "/v1/chat/completions", 1, "local", "abc", FOUND)
EMBED = Entry("embed", "/v1/embeddings", 0, "local", "abc", Learned(GREEDY, 0.9, 32.0, 30.0))


def loaded(path: Path) -> LearnedStore:
    store = LearnedStore(str(path))
    store.load()
    return store


def test_what_was_saved_is_found_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    LearnedStore(str(path)).save([CHAT, EMBED])
    store = loaded(path)
    assert (store.found(CHAT.key), store.found(EMBED.key)) == (CHAT.found, EMBED.found)
    assert sorted(os.listdir(tmp_path)) == ["learned.json"]


@pytest.mark.parametrize("field", ["model", "endpoint", "max_output", "upstream", "servers"])
def test_other_calls_find_nothing(tmp_path: Path, field: str) -> None:
    path = tmp_path / "learned.json"
    LearnedStore(str(path)).save([CHAT])
    other = {name: getattr(CHAT, name) for name in ("model", "endpoint", "max_output", "upstream", "servers")}
    other[field] = 7 if field == "max_output" else "other"
    assert loaded(path).found(tuple(other.values())) is None  # type: ignore[arg-type]


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    first, second = LearnedStore(str(path)), LearnedStore(str(path))
    first.save([CHAT])
    second.save([EMBED])
    assert loaded(path).found(CHAT.key) == CHAT.found
    changed = Entry(*CHAT.key, Learned(OFF, 0.0, 64.0, 30.0))
    second.save([EMBED, changed])
    assert loaded(path).found(CHAT.key) == changed.found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"version": 2, "merge_modes": []}',
        b'{"version": 1, "merge_modes": {}}',
        encode([CHAT]).replace(b"lockstep", b"faster"),
        encode([CHAT]).replace(b"64.0", b'"many"'),
        encode([CHAT]).replace(b"120.0", b"1e999"),
        encode([CHAT])[:-20],
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_not_ours_counts_as_empty_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(content)
    store = loaded(path)
    assert store.found(CHAT.key) is None
    store.save([CHAT])
    assert loaded(path).found(CHAT.key) == CHAT.found


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    store = LearnedStore(str(path))
    store.save([])
    assert not path.exists()
    store.save([CHAT])
    path.unlink()
    store.save([CHAT])
    assert not path.exists()


@pytest.mark.parametrize("kind", ["no folder", "a folder", "a pipe", "a device"])
def test_a_path_that_cannot_be_used_is_named_once_and_ends_nothing(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "learned.json"
    if kind == "no folder":
        path = tmp_path / "none" / "learned.json"
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path = Path("/proc/version/learned.json")
    else:
        os.mkfifo(path)  # has no writer: a plain read of it would wait for ever
    logging.getLogger("sluice").propagate = True
    store = loaded(path)
    assert store.found(CHAT.key) is None
    for _ in range(3):
        store.save([CHAT])
    named = [record for record in caplog.records if "not kept over restarts" in record.getMessage()]
    assert len(named) == (kind != "a pipe")
    if kind == "a folder":
        assert os.listdir(tmp_path) == ["learned.json"]


def test_without_a_path_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LearnedStore(None)
    store.load()
    store.save([CHAT])
    assert not os.listdir(tmp_path)


def test_the_file_is_bounded_and_readable() -> None:
    many = [Entry(f"m{number}", "/v1/embeddings", 0, "local", "abc", FOUND) for number in range(5000)]
    assert len(decode(encode(many))) == 4096
    shown = json.loads(encode([CHAT]))
    assert shown["version"] == 1
    assert shown["merge_modes"][0]["model"] == "m"
