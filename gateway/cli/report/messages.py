"""The texts of the report in English and Korean, from `messages.toml`."""

import tomllib
from functools import cache
from importlib import resources
from typing import Final, Literal

Language = Literal["en", "ko"]
LANGUAGES: Final[tuple[Language, ...]] = ("en", "ko")


def word(key: str, language: Language, **values: object) -> str:
    """Return the text in this language with the values filled in."""
    return _messages()[key][language].format(**values)


def word_or_key(key: str, language: Language) -> str:
    """Return the text of this key, or the key itself if there is none."""
    return word(key, language) if key in _messages() else key


@cache
def _messages() -> dict[str, dict[str, str]]:
    return tomllib.loads(resources.files(__package__).joinpath("messages.toml").read_text(encoding="utf-8"))
