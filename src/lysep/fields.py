"""JSON that somebody else may have written, read field by field: every error says which field, and what is wrong."""

from __future__ import annotations

import math
from typing import Any


class Fields:
    """An object of a JSON document. `where` is how the errors call it."""

    def __init__(self, data: Any, where: str) -> None:
        if not isinstance(data, dict):
            raise ValueError(f"{where} must be an object, but is {_short(data)}.")
        self._data, self._where = data, where

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def whole(self) -> dict[str, Any]:
        return dict(self._data)

    def raw(self, name: str) -> Any:
        if name not in self._data:
            raise ValueError(f"{self._where} has no {name!r}.")
        return self._data[name]

    def object(self, name: str) -> Fields:
        return Fields(self.raw(name), f"{self._where}.{name}")

    def items(self, name: str) -> list[Any]:
        value = self.raw(name)
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value

    def objects(self, name: str) -> list[Fields]:
        return [Fields(item, f"{self._where}.{name}[{place}]") for place, item in enumerate(self.items(name))]

    def text(self, name: str) -> str:
        value = self.raw(name)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def texts(self, name: str) -> list[str]:
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(name, values, "a list of texts")
        return values

    def truth(self, name: str) -> bool:
        value = self.raw(name)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def number(self, name: str) -> float:
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise self._wrong(name, value, "a finite number")
        return float(value)

    def integer(self, name: str, low: int, high: int) -> int:
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(name, value, f"an integer from {low} to {high}")
        return value

    def integers(self, name: str, low: int, high: int) -> tuple[int, ...]:
        values = Fields(dict(enumerate(self.items(name))), f"{self._where}.{name}")
        return tuple(values.integer(place, low, high) for place in values._data)

    def _wrong(self, name: str, value: Any, wanted: str) -> ValueError:
        return ValueError(f"{self._where}.{name} must be {wanted}, but is {_short(value)}.")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
