""".env.example is complete and true: every variable of the deployed files stands in it, and no other."""

import io
import re

from deployed import COMPOSE, DEPLOY, ENV_EXAMPLE, ROOT, example_environment, variables

from gateway.cli import check

COMPOSE_OWN = {"COMPOSE_FILE", "COMPOSE_PROFILES"}
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


def checked(environ: dict[str, str]) -> tuple[int, str, str]:
    """Status, stdout and stderr of `sluice check` on the deployed config."""
    out, err = io.StringIO(), io.StringIO()
    config = DEPLOY / "config/sluice.yaml"
    status = check.run(config, False, False, out=out, err=err, environ=environ)
    return status, out.getvalue(), err.getvalue()


def test_every_variable_that_a_file_names_stands_in_it_and_no_other() -> None:
    named = set[str]().union(*map(variables, [*COMPOSE, DEPLOY / "config/sluice.yaml", *EXAMPLES]))
    assert len(named) > 5
    assert set(example_environment()) == named | COMPOSE_OWN


def test_no_variable_stands_in_it_twice() -> None:
    names = re.findall(r"(?m)^(\w+)=", ENV_EXAMPLE.read_text(encoding="utf-8"))
    assert len(names) == len(set(names))


def test_what_must_have_a_value_has_one_and_is_marked_as_local_only() -> None:
    example = example_environment()
    required = set(re.findall(r"\$\{(\w+):\?", COMPOSE[0].read_text(encoding="utf-8")))
    assert required == {"SLUICE_KEY", "SLUICE_ADMIN_KEY", "GRAFANA_PASSWORD"}
    assert all("local-only" in example[name] for name in required)
    assert "LOCAL ONLY" in ENV_EXAMPLE.read_text(encoding="utf-8")


def test_the_deployed_config_passes_with_it_unedited() -> None:
    status, out, err = checked(example_environment())
    assert (status, out) == (0, "ok: 1 upstream, 1 model, 1 key\n")
    assert err.splitlines() == [
        'warning: upstream "openai" is left out, because its api_key is empty',
        'warning: model "large" is left out, because all its upstreams are',
    ]


def test_a_provider_key_brings_the_paid_model() -> None:
    assert checked(example_environment() | {"OPENAI_API_KEY": "sk-1"}) == (
        0,
        "ok: 2 upstreams, 2 models, 1 key\n",
        "",
    )


def test_compose_may_hand_the_gateway_empty_variables() -> None:
    """compose.yml writes `${NAME:-}`: what .env lacks reaches the gateway as an empty text."""
    assert (
        checked(
            {
                "SLUICE_KEY": "sk-local-only",
                "SLUICE_ADMIN_KEY": "admin-local-only",
                "ENGINE_URL": "",
                "ENGINE_MODEL": "",
                "OPENAI_API_KEY": "",
            }
        )[0]
        == 0
    )


def test_the_deploy_page_asks_with_the_examples_key_and_knows_its_ports() -> None:
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    example = example_environment()
    assert f"Bearer {example['SLUICE_KEY']}" in page
    assert f"http://127.0.0.1:{example['SLUICE_PORT']}/v1" in page
    assert f"`http://127.0.0.1:{example['GRAFANA_PORT']}`" in page


def test_every_deployed_file_that_the_deploy_page_names_exists() -> None:
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bdeploy/[\w./-]+\w", page))
    assert len(named) > 5
    # The copies that the reader makes.
    assert {one for one in named if not (ROOT / one).exists()} <= {"deploy/k8s/.env"}
