"""Recomputing the equations that an answer writes out, as in `3 * (4 + 2) = 18`."""

import re
from fractions import Fraction
from typing import Final, NamedTuple

NUMBER: Final = re.compile(r"\d[\d,]{0,30}(?:\.\d{1,30})?", re.ASCII)
"""A number as people write it: 1,350.50"""

# Each character is read once, whatever follows it: all that may be a side is taken, nothing is tried again.
_SIDE: Final = r"[-( $€£₩]{0,16}+\d(?:[\d. ()$€£₩*×÷x/+\\-]++|,(?=\d))*+"
_LEFT: Final = re.compile(rf"(?<![\w.%=])({_SIDE})(=?)", re.ASCII)
_RIGHT: Final = re.compile(_SIDE, re.ASCII)
_LONGEST_SIDE: Final = 200
_TOKEN: Final = re.compile(rf"{NUMBER.pattern}|[-+*×÷x/()]", re.ASCII)
_DIGITS: Final = 6
_DEEPEST: Final = 16
MOST_TOKENS: Final = 500
"""Numbers and signs of an answer that are computed with; a millisecond or two."""


class CheckedSums(NamedTuple):
    """Equations in a text that could be recomputed, and how many of them are wrong."""

    checked: int
    wrong: int


def number(digits: str) -> Fraction:
    """The value of what `NUMBER` matches."""
    return Fraction(digits.replace(",", ""))


def check(text: str, most: int = MOST_TOKENS) -> CheckedSums:
    """Recompute the equations between two sides of plain arithmetic, one of them a sum.

    A result that was rounded to its own digits is right. A side that is no complete expression, or is longer
    than 200 characters, is left out, and so is all that follows on the first `most` numbers and signs.
    """
    checked = wrong = 0
    for match in _LEFT.finditer(text):
        result = _RIGHT.match(text, match.end()) if match[2] and len(match[1]) <= _LONGEST_SIDE else None
        if result is None or len(result[0]) > _LONGEST_SIDE or text[result.end() : result.end() + 1] == "%":
            continue
        left, right = _TOKEN.findall(match[1]), _TOKEN.findall(result[0])
        most -= len(left) + len(right)
        if most < 0:
            break
        value, told = _value(left), _value(right)
        if len(left) > 1 and value is not None and told is not None:
            checked += 1
            wrong += abs(value - told) > _tolerance(right, value)
    return CheckedSums(checked, wrong)


def _tolerance(right: list[str], value: Fraction) -> Fraction:
    """Half of the last digit that a lone result shows."""
    digits = min(len(right[0].partition(".")[2]), _DIGITS) if len(right) == 1 else _DIGITS
    return Fraction(51, 100 * 10**digits) + abs(value) / 10**_DIGITS


def _value(tokens: list[str]) -> Fraction | None:
    """What an expression comes to; None when it is none, or divides by zero."""
    rest = tokens[::-1]
    try:
        value = _sum(rest, 0)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return None if rest else value


def _sum(rest: list[str], depth: int) -> Fraction:
    value = _product(rest, depth)
    while rest and rest[-1] in "+-":
        value += _product(rest, depth) if rest.pop() == "+" else -_product(rest, depth)
    return value


def _product(rest: list[str], depth: int) -> Fraction:
    value = _factor(rest, depth)
    while rest and rest[-1] in "*×x/÷":
        if rest.pop() in "/÷":
            value /= _factor(rest, depth)
        else:
            value *= _factor(rest, depth)
    return value


def _factor(rest: list[str], depth: int) -> Fraction:
    token = rest.pop()
    if token == "-":
        return -_factor(rest, depth)
    if token == "(" and depth < _DEEPEST:
        value = _sum(rest, depth + 1)
        if rest.pop() != ")":
            raise ValueError
        return value
    return number(token)  # ValueError for a sign in the wrong place
