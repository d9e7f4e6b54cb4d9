"""The methods: each turns an iterate into the next one, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lysep.methods.base import Memory, Method, SweepLog
from lysep.methods.fast import Fast
from lysep.methods.paper import Paper

__all__ = ["Fast", "Memory", "Method", "Paper", "SweepLog", "describe", "from_description", "names", "resolve"]

_BY_NAME = {"fast": Fast, "paper": Paper}


def names() -> list[str]:
    return sorted(_BY_NAME)


def resolve(method: str | Method[Any]) -> Method[Any]:
    """The method of a name with its default options; an instance stays what it is."""
    if isinstance(method, str):
        if method not in _BY_NAME:
            known = ", ".join(map(repr, names()))
            raise ValueError(f"method={method!r} is unknown. Use one of {known}, or an instance such as lysep.Paper().")
        named: Method[Any] = _BY_NAME[method]()
        return named
    if isinstance(method, type) and issubclass(method, Method):
        raise ValueError(f"method={method!r} is a class; pass an instance: {method.__name__}().")
    if not isinstance(method, Method):
        raise ValueError(f"method={method!r} is neither a name nor an instance of a lysep.Method.")
    return method


def describe(method: str | Method[Any]) -> dict[str, Any] | None:
    """The name and the options of a method of ours, as JSON has them; None for anybody else's."""
    chosen = resolve(method)
    for name, kind in _BY_NAME.items():
        if type(chosen) is kind:
            return {"name": name, "options": asdict(chosen)}
    return None


def from_description(name: str, options: Mapping[str, Any]) -> Method[Any]:
    """The method that `describe` described."""
    resolve(name)  # or a name that is not known
    try:
        named: Method[Any] = _BY_NAME[name](**options)
        return named
    except TypeError as error:
        raise ValueError(f"the method {name!r} does not have these options: {error}.") from error
