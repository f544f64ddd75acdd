"""Recomputes the equations in an answer, such as `3 * (4 + 2) = 18`."""

import re
from fractions import Fraction
from typing import Final, NamedTuple

NUMBER: Final = re.compile(r"\d[\d,]{0,30}(?:\.\d{1,30})?", re.ASCII)
"""A number as people write it: 1,350.50"""

# Possessive quantifiers: every character is read once, without backtracking.
_SIDE: Final = r"[-( $€£₩]{0,16}+\d(?:[\d. ()$€£₩*×÷x/+\\-]++|,(?=\d))*+"
_LEFT: Final = re.compile(rf"(?<![\w.%=])({_SIDE})(=?)", re.ASCII)
_RIGHT: Final = re.compile(_SIDE, re.ASCII)
_LONGEST_SIDE: Final = 200
_TOKEN: Final = re.compile(rf"{NUMBER.pattern}|[-+*×÷x/()]", re.ASCII)
_DIGITS: Final = 6
_MAX_DEPTH: Final = 16
MAX_TOKENS: Final = 500
"""Numbers and operators of an answer that are evaluated: a millisecond or two."""


class CheckedSums(NamedTuple):
    """The number of equations that could be recomputed, and of the wrong ones among them."""

    checked: int
    wrong: int


def number(digits: str) -> Fraction:
    """Return the value of a match of `NUMBER`."""
    return Fraction(digits.replace(",", ""))


def check(text: str, max_tokens: int = MAX_TOKENS) -> CheckedSums:
    """Recompute the equations between an arithmetic expression and a result.

    A result rounded to its own digits is right. Incomplete expressions, sides over 200 characters, and
    everything after the first `max_tokens` numbers and operators are skipped.
    """
    checked = wrong = 0
    for match in _LEFT.finditer(text):
        result = _RIGHT.match(text, match.end()) if match[2] and len(match[1]) <= _LONGEST_SIDE else None
        if result is None or len(result[0]) > _LONGEST_SIDE or text[result.end() : result.end() + 1] == "%":
            continue
        left, right = _TOKEN.findall(match[1]), _TOKEN.findall(result[0])
        max_tokens -= len(left) + len(right)
        if max_tokens < 0:
            break
        value, claimed = _value(left), _value(right)
        if len(left) > 1 and value is not None and claimed is not None:
            checked += 1
            wrong += abs(value - claimed) > _tolerance(right, value)
    return CheckedSums(checked, wrong)


def _tolerance(right: list[str], value: Fraction) -> Fraction:
    """Return half of the last digit of a single number."""
    digits = min(len(right[0].partition(".")[2]), _DIGITS) if len(right) == 1 else _DIGITS
    return Fraction(51, 100 * 10**digits) + abs(value) / 10**_DIGITS


def _value(tokens: list[str]) -> Fraction | None:
    """Return the value of an expression; None if it is malformed or divides by zero."""
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
    if token == "(" and depth < _MAX_DEPTH:
        value = _sum(rest, depth + 1)
        if rest.pop() != ")":
            raise ValueError
        return value
    return number(token)  # ValueError for a misplaced operator
