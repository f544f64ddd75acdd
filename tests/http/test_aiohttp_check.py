"""The start-up check of aiohttp's private names."""

import re
import tomllib
from pathlib import Path

import pytest
from aiohttp import StreamReader
from aiohttp.web_protocol import RequestHandler

from gateway.http.server import _aiohttp

ROOT = Path(__file__).resolve().parents[2]


def test_the_locked_version_has_every_name():
    _aiohttp.check()


@pytest.mark.parametrize(("owner", "name"), [(RequestHandler, "_resume_reading_if_drained"), (StreamReader, "_buffer")])
def test_a_missing_name_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch, owner: type, name: str):
    private = {**_aiohttp._PRIVATE, owner: (*_aiohttp._PRIVATE[owner], f"{name}_of_another_version")}
    monkeypatch.setattr(_aiohttp, "_PRIVATE", private)
    monkeypatch.setattr("aiohttp.__version__", "3.99.0")
    expected = (
        f"aiohttp 3.99.0 lacks `{owner.__name__}.{name}_of_another_version`, which the server needs. "
        "It is tested with aiohttp 3.14; install 'aiohttp>=3.14.2,<3.15'."
    )
    with pytest.raises(RuntimeError, match=re.escape(expected)):
        _aiohttp.check()


def test_every_private_name_in_the_adapter_is_checked():
    source = (ROOT / "gateway/http/server/_aiohttp.py").read_text(encoding="utf-8")
    body = source.partition("class ServerProtocol")[2]
    own = set(re.findall(r"def (_\w+)", body)) | {"_serve", "_respond_error", "_request_class", "_cancel"}
    used = set(re.findall(r"self\.(_[a-z]\w*)", body)) - own
    assert used <= set(_aiohttp._PRIVATE[RequestHandler])
    assert used  # what the expressions above look for is still written like this


def test_no_other_file_of_the_server_uses_a_private_name_of_aiohttp():
    names = {name for owner in _aiohttp._PRIVATE.values() for name in owner if name.startswith("_")}
    for path in (ROOT / "gateway/http/server").glob("*.py"):
        if path.name not in ("_aiohttp.py", "listener.py"):  # the listener's names are its own
            text = path.read_text(encoding="utf-8")
            assert not [name for name in names if re.search(rf"\.{name}\b", text)], path


def test_pyproject_bounds_aiohttp_to_the_tested_minor_version():
    with (ROOT / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    assert _aiohttp.REQUIREMENT in dependencies
    name = re.split("[<>=]", _aiohttp.REQUIREMENT)[0]
    locked = re.search(rf"^{name}==([\d.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert locked[1].startswith(f"{_aiohttp.TESTED}.")
