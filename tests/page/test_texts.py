"""The page's words: every name has both languages, every reason a sentence with the same values."""

import re
import string

import pytest
from kit.pages import ROOT

from gateway.inspector.call_record import Step
from gateway.inspector.reasons import EXCLUDED, SENTENCES, CallReason, excluded_sentence
from gateway.page import texts
from gateway.page.render import SCREENS
from gateway.page.texts import TEXTS, Words, spoken


def fields(sentence: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_every_reason_has_a_korean_sentence_with_the_same_values():
    assert texts._REASONS_KO.keys() == SENTENCES.keys()
    assert texts._EXCLUDED_KO.keys() == EXCLUDED.keys()
    for code, sentence in SENTENCES.items():
        assert fields(sentence) == fields(texts._REASONS_KO[code]), code


def test_every_text_is_there_in_korean():
    same = {name for name, (english, korean) in TEXTS.items() if english == korean}
    assert same == {"unit_usd"}
    hangul = re.compile(r"[가-힣]")
    assert all(hangul.search(korean) for name, (_, korean) in TEXTS.items() if name not in {"unit_usd", "language"})


def test_templates_and_code_name_no_text_that_is_not_there():
    written = [*(ROOT / "gateway/page/templates").glob("*.html"), ROOT / "gateway/http/server/page.py"]
    named = {name for path in written for name in re.findall(r"\bw\('(\w+)'\)", path.read_text("utf-8"))}
    assert named - TEXTS.keys() == set()
    for name, _ in SCREENS:
        assert name in TEXTS
    steps = re.findall(r"`(\w+)`", (Step.__doc__ or "").partition("`name` is")[2])
    assert {f"step_{name}" for name in steps} <= TEXTS.keys()


@pytest.mark.parametrize("excluded", ["capability: tools, vision", "window", "budget", "unusable"])
def test_why_a_candidate_was_left_out_is_said_in_korean_too(excluded: str):
    values = {"upstream": "a", "model": "b", "reason": excluded_sentence(excluded)}
    sentence = Words("ko").reason(CallReason("excluded", values))
    assert Words("ko").excluded(excluded) in sentence
    assert ("tools, vision" in sentence) is ("tools" in excluded)


@pytest.mark.parametrize(
    ("header", "language"), [("ko", "ko"), ("ko-KR,en;q=0.5", "ko"), ("en-US,ko", "en"), ("", "en"), ("kok", "en")]
)
def test_spoken(header: str, language: str):
    assert spoken(header) == language
