"""Parameters declared once, each with what it must be in words, and checked from the declaration."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rule:
    """What a value must be: a test, and the words that complete "must be"."""

    holds: Callable[[Any], bool]
    words: str
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        if not self.holds(value):
            raise ValueError(f"{name}={value!r} must be {self.words}.{did_you_mean(value, self.choices)}")


def check(values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    for name, rule in rules.items():
        rule.check(name, values[name])


def did_you_mean(value: Any, choices: Iterable[str]) -> str:
    """A hint where a text is nearly one of the choices, else nothing."""
    close = difflib.get_close_matches(value, list(choices), n=1) if isinstance(value, str) else []
    return f" Did you mean {close[0]!r}?" if close else ""


def one_of(*choices: str) -> Rule:
    return Rule(
        lambda value: isinstance(value, str) and value in choices,
        "one of " + ", ".join(map(repr, choices)),
        choices,
    )


def is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


COUNT = Rule(lambda value: is_integer(value) and value >= 1, "a positive integer")
NOT_NEGATIVE = Rule(lambda value: is_number(value) and value >= 0.0, "zero or a positive number")
FRACTION = Rule(lambda value: is_number(value) and 0.0 < value < 1.0, "a number between 0 and 1")
TRUTH = Rule(
    lambda value: isinstance(value, bool | np.bool_) or (is_integer(value) and value in (0, 1)), "True or False"
)


def optional(rule: Rule) -> Rule:
    return Rule(lambda value: value is None or rule.holds(value), f"{rule.words}, or None", rule.choices)
