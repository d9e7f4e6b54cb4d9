"""The methods: each turns an iterate into the next one, and nothing else."""

from __future__ import annotations

from typing import Any

from lysep.methods.base import Memory, Method, SweepLog
from lysep.methods.fast import Fast
from lysep.methods.paper import Paper

__all__ = ["Fast", "Memory", "Method", "Paper", "SweepLog", "resolve"]

_BY_NAME = {"fast": Fast, "paper": Paper}


def resolve(method: str | Method[Any]) -> Method[Any]:
    """The method of a name with its default options; an instance stays what it is."""
    if isinstance(method, str):
        if method not in _BY_NAME:
            names = ", ".join(repr(name) for name in sorted(_BY_NAME))
            raise ValueError(f"method={method!r} is unknown. Use one of {names}, or an instance such as lysep.Paper().")
        named: Method[Any] = _BY_NAME[method]()
        return named
    if isinstance(method, type) and issubclass(method, Method):
        raise ValueError(f"method={method!r} is a class; pass an instance: {method.__name__}().")
    if not isinstance(method, Method):
        raise ValueError(f"method={method!r} is neither a name nor an instance of a lysep.Method.")
    return method
