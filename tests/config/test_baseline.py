"""`models.*.baseline`: a public model or a price, and what it becomes."""

import pytest
import yaml

from gateway.assembly.upstreams import routes
from gateway.config.load import Loaded, load
from gateway.config.show import as_yaml
from gateway.core.tokens import Price

TWO = """
upstreams:
  a: {base_url: "http://127.0.0.1:1/v1"}
  b: {base_url: "http://127.0.0.1:2/v1", api_key: "${KEY_B:-}"}
models:
  large: {candidates: [{upstream: b, model: big}, {upstream: a}]}
  small: {candidates: [{upstream: a}], baseline: BASELINE}
"""

NAME = "must be 1 to 256 printable characters, without spaces around them"


@pytest.fixture
def loaded(tmp_path):
    def loads(baseline: str, key: str = "sk-something", text: str = TWO) -> Loaded:
        file = tmp_path / "sluice.yaml"
        file.write_text(text.replace("BASELINE", baseline), encoding="utf-8")
        return load(file, {"KEY_B": key})

    return loads


def candidate(found: Loaded):
    """What calls for `small` are compared with."""
    assert found.problems == []
    assert found.config is not None
    return routes(found.config, lambda one, upstream: None)["small"].baseline


def test_without_a_baseline_it_is_the_first_candidate(loaded):
    one = candidate(loaded("null"))
    assert (one.upstream, one.model) == ("a", "small")


def test_a_model_stands_for_its_first_candidate(loaded):
    one = candidate(loaded("large"))
    assert (one.upstream, one.model) == ("b", "big")


def test_a_price_belongs_to_no_upstream(loaded):
    one = candidate(loaded("{price: {input: 3, output: 15}}"))
    assert (one.upstream, one.model, one.price) == (
        "",
        "3 in, 15 out",
        Price(3 * 10**9, 15 * 10**9, 3 * 10**9),
    )


@pytest.mark.parametrize("written", ["large", "{price: {input: 3, output: 15}}", "null"])
def test_it_is_shown_as_it_is_written(loaded, written):
    shown = yaml.safe_load(as_yaml(loaded(written).config))
    assert shown["models"]["small"]["baseline"] == yaml.safe_load(written)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("larg", 'models.small.baseline: no model named "larg"; did you mean "large"?'),
        ("{price: {input: 3}}", "models.small.baseline.price.output: required, but missing"),
        ("{cost: 3}", "models.small.baseline.cost: unknown field"),
        ("[large]", f"models.small.baseline: {NAME}; found a list"),
    ],
)
def test_a_mistake_is_reported_with_its_path(loaded, written, problem):
    assert problem in [str(one) for one in loaded(written).problems]


def test_a_baseline_left_out_with_its_upstream_is_a_warning(loaded):
    alone = TWO.replace(", {upstream: a}]}", "]}", 1)
    found = loaded("large", key="", text=alone)
    assert candidate(found).model == "small"
    assert any("baseline" in warning for warning in found.warnings)
