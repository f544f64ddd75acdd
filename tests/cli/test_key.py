"""`sluice key new`: what it prints works as it stands."""

from pathlib import Path

import pytest
import yaml
from doubles.settings import settings

from gateway.auth.authenticate import Authenticate
from gateway.cli.main import main
from gateway.config.load import load
from gateway.core.call import Call, ClientRequest, Credentials
from gateway.core.caller import Caller
from gateway.wire.openai.chat import CHAT


def minted(capsys: pytest.CaptureFixture[str], name: str) -> tuple[str, str]:
    """The key, and the text of its entry."""
    assert main(["key", "new", "--name", name]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    said, _, entry = out.partition("\n\n")
    return said.splitlines()[0].removeprefix("key: "), entry


@pytest.mark.parametrize("name", ["team-a", 'a: "b" #\\ {c}', "팀", "yes", "12"])
def test_the_entry_admits_the_key_and_does_not_hold_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, entry = minted(capsys, name)
    assert key not in entry
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(settings("http://127.0.0.1:1/v1")) + entry, encoding="utf-8")
    loaded = load(file, {})
    assert loaded.config is not None, loaded.problems
    (configured,) = loaded.config.keys
    assert configured.name == name
    gate = Authenticate({configured.digest(): Caller(name, None)})
    call = Call(ClientRequest(CHAT, "id", Credentials(f"Bearer {key}", None, None)), 1.0)
    assert gate.admit(call, 1.0) is None
    assert call.caller.name == name


def test_no_two_keys_are_alike(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {minted(capsys, "a")[0] for _ in range(20)}
    assert len(keys) == 20
    assert all(len(key) >= 32 for key in keys)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a" * 257])
def test_a_name_that_the_config_would_refuse_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["key", "new", "--name", name])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("sluice key new: argument --name: must be 1 to 256 printable")
