"""Which route a requested name finds: a model's own name, an exact alias, the best pattern."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.calls import make_candidate, make_route

from gateway.auth.model_names import ModelNames, is_pattern

MODELS = ("small", "large", "gpt-4")


def names(**aliases: Sequence[str]) -> ModelNames:
    """Models `small`, `large` and `gpt-4` with these aliases."""
    return ModelNames({name: make_route(name=name) for name in MODELS}, aliases)


def found(known: ModelNames, name: str) -> str | None:
    """The public model that a name finds."""
    route = known.find(name)
    return None if route is None else route.name


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ("small", "small"),
        ("gpt-4", "gpt-4"),  # the pattern matches it too
        ("gpt-4o", "large"),  # and this one
        ("gpt-4o-mini", "small"),
        ("gpt-", "small"),
        ("GPT-4o-mini", None),
        ("xgpt-5", None),
        ("gpt-5\n", "small"),
        ("", None),
    ],
)
def test_exact_names_win_over_patterns(asked: str, model: str | None) -> None:
    assert found(names(small=["gpt-*"], large=["gpt-4o"]), asked) == model


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ("claude-opus-4", "small"),
        ("claude-haiku-4", "large"),  # the longer pattern, though the shorter one stands first
        ("claude-haiku-3", "gpt-4"),  # a class of characters is a wildcard
        ("text-a", "small"),  # as long as the other: the first one
    ],
)
def test_the_pattern_with_the_most_letters_wins(asked: str, model: str) -> None:
    known = names(
        small=["claude-*", "text-?"],
        large=["claude-haiku-*", "?ext-a"],
        **{"gpt-4": ["claude-haiku-3*", "claude-*[abcdefghijk]x"]},
    )
    assert found(known, asked) == model


def test_an_alias_is_its_model_under_the_name_that_was_asked_for() -> None:
    model, fallback = make_route(name="small"), make_route(name="large")
    model.fallbacks, model.baseline = (fallback,), make_candidate("paid")
    known = ModelNames({"small": model, "large": fallback}, {"small": ["fast", 'a"*']})
    for asked, encoded in (("fast", b'"fast"'), ('a"\u00e4', '"a\\"\u00e4"'.encode())):
        route = known.find(asked)
        assert route is not None
        assert (route.name, route.encoded) == ("small", encoded)
        assert (route.candidates, route.fallbacks, route.baseline) == (
            model.candidates,
            model.fallbacks,
            model.baseline,
        )
        assert known.find(asked) is route  # remembered
    assert known.find("small") is model
    assert known.exact.keys() == {"small", "large", "fast"}


def test_a_long_name_is_no_match() -> None:
    known = names(small=["*"])
    assert found(known, "x" * 256) == "small"
    assert known.find("x" * 257) is None


def test_what_is_remembered_is_bounded() -> None:
    known = names(small=["x*"])
    first = known.find("x0")
    for number in range(2000):
        assert found(known, f"x{number}") == "small"
        assert known.find(f"y{number}") is None
    assert known.find("x0") is not first  # forgotten, and found anew
    assert found(known, "x0") == "small"


@given(st.text("ab*?[]-", max_size=8), st.text("ab*?[]-", max_size=8))
def test_patterns_are_those_of_the_shell(alias: str, asked: str) -> None:
    if not alias:
        return
    expected = fnmatchcase(asked, alias) if is_pattern(alias) else asked == alias
    assert (found(names(small=[alias]), asked) == "small") == expected


@pytest.mark.parametrize(
    ("alias", "pattern"), [("a", False), ("a*", True), ("a?", True), ("[1m]", True), ("a[", False)]
)
def test_what_a_pattern_is(alias: str, pattern: bool) -> None:
    assert is_pattern(alias) == pattern
