"""Keys from a file of their own: JSON lines or CSV, checked like those of the config."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Load
from sample_configs import MINIMAL

from gateway.assembly.reload import ConfigSource
from gateway.config.load import Loaded
from gateway.config.model import KeyConfig, LimitsConfig

SECRET = "sk-very-secret-text"
OWN = 'keys: [{name: own, key: "sk-own-own-own"}]\n'


@pytest.fixture
def with_file(load_text: Load, tmp_path: Path) -> Callable[..., Loaded]:
    """Loads a config with this text in the file that `keys_file` names."""

    def loads(text: str, name: str = "keys.jsonl", own: str = "") -> Loaded:
        (tmp_path / name).write_text(text)
        return load_text(f"{MINIMAL}keys_file: {name}\n{own}")

    return loads


def keys_of(loaded: Loaded) -> tuple[KeyConfig, ...]:
    assert loaded.problems == []
    assert loaded.config is not None
    return loaded.config.keys


def places(loaded: Loaded, tmp_path: Path) -> dict[str, str]:
    assert loaded.config is None
    text = "".join(f"{problem}" for problem in loaded.problems)
    assert SECRET not in text
    return {path.replace(f"{tmp_path}/", ""): message for path, message in loaded.problems}


def test_json_lines_have_the_fields_of_keys(with_file):
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    line = f'{{"name": "a", "key_sha256": "{digest}", "models": ["s*"], "keep_bodies": false, "limits": {{"rpm": 15}}}}'
    own, key, other = keys_of(
        with_file(f'{line}\n\n{{"name": "b", "key": "sk-another-text", "limits": {{"tpm": 9}}}}\n', own=OWN)
    )
    assert own.name == "own"
    assert (key.name, key.models, key.keep_bodies, key.limits) == ("a", ("s*",), False, LimitsConfig(rpm=15))
    assert key.digest().hex() == digest
    assert (other.limits.tpm, other.digest()) == (9, hashlib.sha256(b"sk-another-text").digest())


def test_a_table_has_the_limits_as_columns(with_file):
    text = f"name,key,models,rpm,usd_per_day\na,{SECRET},small s*,60,\nb,{SECRET}2,,,1.5\n"
    first, second = keys_of(with_file(text, "keys.csv"))
    assert (first.models, first.limits) == (("small", "s*"), LimitsConfig(rpm=60))
    assert (second.models, second.limits.usd_per_day) == (("*",), 1_500_000_000)


def test_mistakes_are_named_by_file_and_line(with_file, tmp_path):
    first = f'{{"name": "a", "key": "{SECRET}", "limits": {{"rpm": "{SECRET}"}}}}'
    text = f'{first}\n{SECRET}\n\n[1]\n{{"key": "{SECRET}2"}}\n'
    assert places(with_file(text, own=OWN), tmp_path).keys() == {
        "keys.jsonl line 1: limits.rpm",
        "keys.jsonl line 2",
        "keys.jsonl line 4",
        "keys.jsonl line 5: name",
    }


def test_names_and_keys_of_both_places_are_compared(with_file, tmp_path):
    text = '{"name": "own", "key": "sk-own-own-own"}\n'
    found = places(with_file(text, own=OWN), tmp_path)
    assert found["keys.jsonl line 1: name"] == '"own" is already the name of keys[0]'
    assert found["keys.jsonl line 1: key"] == "the same key as that of keys[0]"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name,key\na\n", "keys.csv line 2"),
        (f'name,key\na,"{SECRET}\n', "keys.csv line 2"),
        (f"name,name,key\na,b,{SECRET}\n", "keys.csv line 1"),
    ],
    ids=["cells", "quote", "columns"],
)
def test_a_broken_table(with_file, tmp_path, text: str, place: str):
    assert place in places(with_file(text, "keys.csv"), tmp_path)


def test_a_file_that_is_missing(load_text: Load, tmp_path: Path):
    assert "no such file" in places(load_text(f"{MINIMAL}keys_file: none.jsonl\n"), tmp_path)["keys_file"]


def test_more_keys_than_a_config_could_hold(with_file):
    text = "".join(
        f'{{"name": "key-{n}", "key": "sk-number-{n:06}", "limits": {{"rpm": 60}}}}\n' for n in range(20_000)
    )
    assert len(keys_of(with_file(text))) == 20_000


def test_a_change_of_the_file_is_a_change_of_the_config(tmp_path: Path):
    (tmp_path / "sluice.yaml").write_text(f"{MINIMAL}keys_file: keys.csv\n")
    (tmp_path / "keys.csv").write_text(f"name,key\na,{SECRET}\n")
    source = ConfigSource(tmp_path / "sluice.yaml", {}, {})
    assert len(keys_of(source.read())) == 1
    assert not source.changed()
    (tmp_path / "keys.csv").write_text(f"name,key\na,{SECRET}\nb,{SECRET}2\n")
    assert [source.changed(), source.changed()] == [False, True]
    assert len(keys_of(source.read())) == 2
