"""Prompts that differ from their first word on, so that no cache answers instead of the model."""

from collections.abc import Iterator
from random import Random
from typing import Final

# Common words of one token each in most vocabularies.
_TEXT: Final = """
water river stone wheel mill grain bread field cloud rain snow wind light night morning summer winter
road bridge house door window table chair paper letter word book story song music voice silence
green blue white black yellow small large open close early late north south east west near far
time year month week day hour minute second number line point circle square corner middle
horse bird fish tree leaf root seed fruit apple salt sugar milk butter cheese honey fire smoke ash
iron copper silver gold glass wood clay sand earth ocean island harbor ship sail anchor rope net
walk run stand sit speak listen read write count measure carry build break mend turn hold give take
"""
_WORDS: Final = _TEXT.split()


def prompts(rng: Random, tokens: tuple[int, int]) -> Iterator[str]:
    """An endless series of texts of about as many tokens as the range `tokens` says."""
    while True:
        yield " ".join(rng.choices(_WORDS, k=rng.randint(*tokens)))
