"""The words of a report, in English and in Korean; they stand in `messages.toml`."""

import tomllib
from functools import cache
from importlib import resources
from typing import Final, Literal

Language = Literal["en", "ko"]
LANGUAGES: Final[tuple[Language, ...]] = ("en", "ko")


def word(key: str, language: Language, **values: object) -> str:
    """A text in this language, with values in it."""
    return _words()[key][language].format(**values)


def known(key: str, language: Language) -> str:
    """A word for it, or the thing itself where there is none."""
    return word(key, language) if key in _words() else key


@cache
def _words() -> dict[str, dict[str, str]]:
    return tomllib.loads(resources.files(__package__).joinpath("messages.toml").read_text(encoding="utf-8"))
