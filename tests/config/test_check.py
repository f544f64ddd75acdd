"""`sluice check`: exit status, what goes where, and that it never ends in a traceback."""

import io
import os
import subprocess
import sys

import pytest
import yaml
from sample_configs import MINIMAL

from gateway.cli import check
from gateway.cli.main import main
from gateway.config.show import effective

UNPRICED = (
    "warning: models.small.candidates[0].price: the price of small at local is not known; "
    "set it (0 is a price), or set the upstream's kind if it is your own engine\n"
)


@pytest.fixture
def checked(tmp_path):
    def run(text, *, show=False, environ=None):
        path = tmp_path / "sluice.yaml"
        path.write_text(text, encoding="utf-8")
        out, err = io.StringIO(), io.StringIO()
        status = check.run(path, show, False, out=out, err=err, environ=environ or {})
        return status, out.getvalue(), err.getvalue()

    return run


def test_a_good_config_is_counted(checked):
    assert checked(MINIMAL) == (0, "ok: 1 upstream, 1 model, 0 keys\n", UNPRICED)


def test_a_known_price_is_no_warning(checked):
    own = MINIMAL.replace("/v1", '/v1", kind: "vllm')
    paid = MINIMAL.replace("local}]", "local, price: {input: 0, output: 0}}]")
    listed = MINIMAL.replace("http://127.0.0.1:8000", "https://api.openai.com").replace("small", "gpt-4o")
    for known in (own, paid, listed):
        assert checked(known) == (0, "ok: 1 upstream, 1 model, 0 keys\n", "")


def test_every_problem_is_one_line_on_stderr(checked):
    status, out, err = checked(MINIMAL.replace("local}]", "x}]") + "server: {prot: 1, port: x}\nzzz: 1\n")
    assert (status, out) == (2, "")
    assert sorted(line.split(": ")[0] for line in err.splitlines()) == [
        "models.small.candidates[0].upstream",
        "server.port",
        "server.prot",
        "zzz",
    ]


def test_warnings_do_not_fail(checked):
    status, out, err = checked(MINIMAL + "keys: [{name: a, key: abcdefgh, models: [none]}]\n")
    assert status == 0
    assert out == "ok: 1 upstream, 1 model, 1 key\n"
    assert err == 'warning: keys[0].models[0]: "none" matches no model\n' + UNPRICED


def test_show_prints_yaml_alone_on_stdout(checked, good):
    status, out, err = checked(MINIMAL, show=True)
    assert status == 0
    assert yaml.safe_load(out) == effective(good(MINIMAL).config)
    assert err == UNPRICED + "ok: 1 upstream, 1 model, 0 keys\n"


def test_the_command_line_reaches_it(tmp_path, capsys):
    path = tmp_path / "other.yaml"
    assert main(["check", "--config", str(path)]) == 2
    assert capsys.readouterr().err == f"{path}: no such file; name one with --config or SLUICE_CONFIG\n"


def test_no_traceback_where_the_terminal_knows_only_ascii(tmp_path):
    path = tmp_path / "sluice.yaml"
    path.write_text(MINIMAL.replace("small", "größe") + 'server: {zeitü: 1}\n"\\ud83d": 1\n', encoding="utf-8")
    command = [sys.executable, "-m", "gateway", "check", "--show", "--config", str(path)]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=environ, timeout=60, check=False)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 2
    path.write_text(MINIMAL.replace("small", "größe"), encoding="utf-8")
    done = subprocess.run(command, capture_output=True, env=environ, timeout=60, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert list(yaml.safe_load(done.stdout)["models"]) == ["größe"]
