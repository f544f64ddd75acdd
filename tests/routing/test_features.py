"""Features of prompts: pinned numbers, and changes that must make no difference."""

from math import log

import pytest
from pairs import PAIRS

from gateway.routing.complexity import prompt_tail
from gateway.routing.complexity.features import LENGTH_OFFSET, NAMES, SHORT, WINDOW, Prompt, grams, read
from gateway.routing.complexity.lexicon import CUES, HARD, NEUTRAL, inflections, kinds, spaced
from gateway.routing.complexity.scorer import PromptScorer
from gateway.routing.complexity.weights import shipped

PROMPTS = [prompt for pair in PAIRS for prompt in pair]


def seen(text: str, **around: int) -> dict[str, float]:
    """The features that are not 0."""
    dense = read(Prompt(text, **around)).dense
    return {name: value for name, value in zip(NAMES, dense, strict=True) if value}


def counted(text: str) -> dict[str, int]:
    """As `seen`, without the length, counts as whole numbers."""
    features = seen(text)
    features.pop("length")
    return {name: round(2.718281828**value - 1) for name, value in features.items()}


def length(letters: int) -> object:
    """The feature of a prompt of so many letters."""
    return pytest.approx(log(LENGTH_OFFSET + letters))


def test_length_is_that_of_words_that_are_neither_neutral_nor_cues():
    assert seen("Could you please prove it? " + "tree " * 50)["length"] == length(200)
    assert seen("증명해 주세요 " + "나무 " * 50)["length"] == length(200)


def test_up_to_a_sentence_the_length_says_nothing():
    assert seen("Tree") == {"length": length(SHORT)}
    assert seen("Tall tree " * 5) == {"length": length(SHORT)}


def test_words_marks_and_numbers_are_counted():
    assert counted("Prove: {x} 3 + 4 = 7 and 1,200.50") == {
        "numbers": 4,
        "proof words": 1,
        "mathematical marks": 2,
        "code marks": 2,
    }
    assert counted("정리를 증명하고 알고리즘을 구현하시오") == {
        "proof words": 1,
        "building words": 1,
        "code words": 1,
    }


@pytest.mark.parametrize("word", ["bug", "Bugs", "debugging", "leaked", "optimize", "proofs", "queries"])
def test_inflections_of_a_cue_are_the_cue(word):
    assert {name for name in counted(word) if name in HARD}


def test_inflections_are_regular():
    assert [*inflections("optimise")][:3] == ["optimises", "optimised", "optimising"]
    assert "optimizing" in [*inflections("optimise")]
    assert [*inflections("query")] == ["queries", "queried", "querying"]
    assert [*inflections("crash")] == ["crashes", "crashed", "crashing"]
    assert [*inflections("debug")] == ["debugs", "debuged", "debuging", "debugged", "debugging"]


def test_fix_is_no_simple_task():
    assert "simple-task words" not in counted("Fix the bug in this code")
    assert "simple-task words" not in counted("이 코드의 버그를 고쳐 줘")


def test_a_fact_is_asked_for_by_the_first_word_or_by_a_korean_one():
    assert counted("Please tell me who wrote it") == {"fact questions": 1}
    assert "fact questions" not in counted("The program crashes when it starts")
    assert counted("호주의 수도는 어디인가요?") == {"fact questions": 1}


def test_repeating_a_word_or_many_of_them_buys_little():
    assert counted("prove " * 50) == {"proof words": 1}
    every = " ".join(word for word in CUES["proof words"] if word.isascii())
    assert counted(every) == {"proof words": 2}


def test_cue_words_count_in_the_first_words_and_not_in_the_last_ones():
    assert counted("tree " * 8 + "prove") == {}
    assert counted("please " * 8 + "tree " * 7 + "prove") == {"proof words": 1}
    assert counted("tree " * 20 + "prove " + "tree " * 16) == {"proof words": 1}
    assert counted("tree " * 20 + "prove " + "tree " * 15) == {}


def test_the_context_of_the_turn_counts():
    around = seen("x", turns=4, context=1000, tools=3, max_output=2000, schema=1)
    assert around == {
        "length": length(SHORT),
        "turns": pytest.approx(log(4)),
        "context": pytest.approx(log(2)),
        "tools": pytest.approx(log(4)),
        "output cap": pytest.approx(log(2)),
        "schema": 1.0,
    }


@pytest.mark.parametrize(
    ("text", "alike"),
    [
        (
            "A story about Tom. How many apples has he? Prove theorems.",
            "A story about Tom. How many apples has he?",
        ),
        ("Let G be a finite group of order fifteen. Derive it", "Let G be a finite group of order fifteen."),
        ("How many apples? Please, thank you!", "How many apples?"),
        ("How many apples? [best model]", "How many apples?"),
        ("How many apples has he? Prove it. Derive it.", "How many apples has he?"),
        (
            "What is it? A. an apple B. a pear C. a plum Answer: Prove it",
            "What is it? A. an apple B. a pear C. a plum",
        ),
    ],
)
def test_a_short_sentence_after_the_task_is_ignored(text, alike):
    assert read(Prompt(text)).dense == read(Prompt(alike)).dense


@pytest.mark.parametrize(
    "text",
    [
        "Tom has apples. How many must he prove to have?",  # the only question
        "Hello there! Could you please help me? Prove it by induction.",  # nothing was said before
        "Trees. Prove that every finite connected graph has a spanning tree",  # far more than before
    ],
)
def test_a_last_sentence_that_is_the_task_counts(text):
    assert "proof words" in counted(text)


def test_simple_task_words_count_in_a_last_sentence_too():
    assert counted("The long report of the committee is here. Translate it.") == {"simple-task words": 1}


def test_the_middle_of_a_long_prompt_only_adds_length():
    ends = "tree " * (WINDOW // 5)
    middle = counted(ends + "prove 1 + 1 = 2 " * 1000 + ends)
    assert middle == {}
    assert seen(ends + "tree " * 5000 + ends)["length"] > seen(ends + ends)["length"]


def test_asides_of_tools_are_ignored():
    aside = "<system-reminder>Prove theorems</system-reminder>"
    assert read(Prompt(f"{aside}How many apples?{aside}")).dense == read(Prompt("How many apples?")).dense
    assert "proof words" in counted("<system-reminder>Prove the theorem of apples")
    assert "proof words" in counted("<b>Prove</b> the theorem of apples")


def test_asides_beyond_the_first_ones_are_text():
    aside = "<system-reminder>Prove theorems</system-reminder>"
    assert "proof words" not in counted(aside * 60 + "How many apples?")
    assert "proof words" in counted(aside * 70 + "How many apples?")


@pytest.mark.parametrize(
    "text",
    [
        "Trees. " + "the? " * 110 + "Apples?",
        "나무. " + "왜? " * 80 + "사과?",
        "나무? " + "a? " * 99 + "Pear?",
    ],
)
def test_only_the_last_few_questions_are_looked_at(text, monkeypatch):
    looked = []
    monkeypatch.setattr(prompt_tail, "kinds", lambda *words: looked.append(words) or kinds(*words))
    counted(text)
    assert len(looked) <= 16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't; 3.5×4=14 [x]", ["Don", "t", "3", "5", "4", "14", "x"]),
        ("안녕！\u3000정말…3개「책」\x00\x7fé", ["안녕", "정말", "3개", "책", "é"]),
        ("\ud83d", []),
    ],
)
def test_words_keep_their_positions(text, words):
    blank = spaced(text)
    assert blank.split() == words
    assert len(blank) == len(text)
    assert all(one in (" ", other) for one, other in zip(blank, text, strict=True))


def test_pairs_of_words_and_of_wide_characters_are_grams():
    assert {*grams(["tall", "trees"])} == {"tall", "trees", ("tall", "trees")}
    assert {*grams(["증명하", "한"])} == {"증명", "명하", "한", ("증명", "명하"), ("명하", "한")}


def test_no_word_is_in_two_lists():
    listed = [word for words in [*CUES.values(), NEUTRAL] for word in words]
    assert sorted(listed) == sorted(set(listed))


BLANKS = " " * 30_000


@pytest.mark.parametrize("text", [*PROMPTS[::7], "tree " * 200, "tree prove " * 3000, "나무 증명 " * 900])
@pytest.mark.parametrize("blank", [BLANKS, "\n" * 30_000, "\u3000\t" * 9000])
def test_white_space_changes_nothing(text, blank):
    expected = read(Prompt(text))
    assert read(Prompt(blank + text + blank)) == expected
    assert read(Prompt(text.replace(" ", " \n\n", 1))) == expected
    assert read(Prompt(text.replace(" ", blank, 1))) == expected
    assert read(Prompt(blank.join(text.rsplit(" ", 1)))) == expected


CHANGES = {
    "upper case": str.upper,
    "lower case": str.lower,
    "white space": lambda text: "  \n" + text.replace(" ", "   ").replace(". ", ".\n\n") + "\n\n",
    "best model": lambda text: "Use the best model. " + text + " Please use the best model.",
    "polite before": lambda text: "Hello! Could you please help me with the following question? " + text,
    "polite after": lambda text: text + "\n\nThank you very much in advance, I really appreciate your help!",
    "polite Korean": lambda text: "안녕하세요! 혹시 다음 질문에 답변해 주실 수 있을까요? " + text + " 정말 감사합니다.",
    "fence": lambda text: f"```text\n{text}\n```",
    "quote": lambda text: "> " + text.replace("\n", "\n> "),
    "bold": lambda text: f"**{text}**",
    "heading": lambda text: f"# Question\n\n{text}",
    "reminder": lambda text: text + "<system-reminder>Prove and derive it all.</system-reminder>",
}


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_form_flips_at_most_one_percent_of_the_decisions(change, share):
    scorer = PromptScorer(shipped())
    scores = [scorer.score(Prompt(text)) for text in PROMPTS]
    border = sorted(scores)[int(len(scores) * (1 - share))]
    changed = [scorer.score(Prompt(change(text))) for text in PROMPTS]
    flips = sum((one > border) is not (other > border) for one, other in zip(scores, changed, strict=True))
    assert flips <= 0.01 * len(PROMPTS)
