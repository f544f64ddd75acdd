"""What docs/security.md says of bounds, fields and tests is what there is."""

import re

from kit.pages import ROOT, table

from gateway.wire.json import limits as json_limits
from gateway.wire.openai import request_limits

PAGE = ROOT / "docs" / "security.md"


def test_every_threat_has_its_tests_or_says_why_not() -> None:
    rows = table(PAGE, "# | threat | defence | tests")
    assert [int(row[0]) for row in rows] == list(range(1, 48))
    for number, _, defence, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert named or "**not defended**" in defence or int(number) > 44, number
        for name in named:
            assert (ROOT / "tests" / name).is_file(), name


def test_the_fields_and_bounds_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = re.findall(r"^- (?:vLLM|SGLang|llama\.cpp): (.*)$", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(listed)) == list(request_limits.ENGINE_FIELDS)
    told = dict(table(PAGE, "what | bound"))
    assert told["`n`, `best_of`"] == str(request_limits.MOST_CHOICES)
    assert str(request_limits.MOST_LOGPROBS) in told["`logprobs`, `top_logprobs`, `prompt_logprobs`"]
    assert str(request_limits.MOST_ENDS) in told["`stop`, `stop_token_ids`, `bad_words`"]
    assert told["nesting of lists and objects"] == str(json_limits.MAX_DEPTH)
    assert f"{json_limits.MAX_KEYS:,}" in told["keys in the whole body; lists and objects in it"]


def test_the_policy_names_a_page_that_is_there() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert all((ROOT / name).is_file() for name in re.findall(r"\]\(([\w./]+)\)", policy))
