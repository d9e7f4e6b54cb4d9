"""A run: what was asked for, where it ran, one line a sweep, and what came of it. One plain file a run.

A file holds JSON lines: first the specification, the machine and the names of the columns; then one list a sweep, in
the order of the columns; last the outcome. Files appear whole or not at all, so a run that is killed leaves nothing.
Versions and machine are recorded, but only the specification says which run it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Specification = Mapping[str, Any]
"""Plain values by name. Two runs are the same run if, and only if, their specifications are equal."""

_ALL_UP_TO, _PER_DECADE = 100, 50  # which sweeps a history keeps
_NAMING = ("problem", "time", "network", "method", "seed")  # what of a specification is in the name of its file


@dataclass(frozen=True)
class Outcome:
    """How a run ended. A failed run has an error and no scores."""

    status: str  # "ok" or "failed"
    ended: str  # why it ended there, for people; of a failed run the error
    sweeps: int
    seconds: float
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # by data: "train", "test", "last_batch"
    predictions: str = ""  # the predicted class of every test sample, a digit each


@dataclass(frozen=True)
class Run:
    specification: Specification
    machine: Mapping[str, Any]
    columns: Sequence[str]
    history: Sequence[Sequence[float]]
    outcome: Outcome

    @property
    def ok(self) -> bool:
        return self.outcome.status == "ok"

    def column(self, name: str) -> list[float]:
        place = list(self.columns).index(name)
        return [row[place] for row in self.history]


class Store:
    """A folder of runs."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, specification: Specification) -> Path:
        canonical = json.dumps(specification, sort_keys=True)
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:10]
        words = [_word(specification[name]) for name in _NAMING if specification.get(name) is not None]
        return self.folder / f"{'-'.join([*words, digest])}.jsonl"

    def __contains__(self, specification: Specification) -> bool:
        return self.path(specification).is_file()

    def __iter__(self) -> Iterator[Run]:
        return (_read(path) for path in sorted(self.folder.glob("*.jsonl")))

    def get(self, specification: Specification) -> Run | None:
        path = self.path(specification)
        return _read(path) if path.is_file() else None

    def save(self, run: Run) -> Path:
        """Write beside the target, then rename: nobody ever sees half a run."""
        path = self.path(run.specification)
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text("".join(f"{line}\n" for line in _lines(run)))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return path


class Thinned:
    """A long history, kept thin as it comes: the first hundred sweeps, then fifty a decade, and always the last."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self.last: Mapping[str, float] | None = None
        self._kept: list[Mapping[str, float]] = []

    def append(self, row: Mapping[str, float]) -> None:
        """`row` has the columns, "sweep" among them, and may have more."""
        if row["sweep"] <= _ALL_UP_TO or _place(row["sweep"]) > _place(self._kept[-1]["sweep"] if self._kept else 1.0):
            self._kept.append(row)
        self.last = row

    @property
    def rows(self) -> list[list[float]]:
        ends = [] if self.last is None or self._kept[-1:] == [self.last] else [self.last]
        return [[row[name] for name in self.columns] for row in (*self._kept, *ends)]


def _place(sweep: float) -> int:
    return math.floor(_PER_DECADE * math.log10(sweep))


def _word(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _lines(run: Run) -> Iterator[str]:
    yield json.dumps({"specification": run.specification, "machine": run.machine, "columns": list(run.columns)})
    for row in run.history:
        yield json.dumps([_short(value) for value in row])
    yield json.dumps(asdict(run.outcome))


def _short(value: float) -> float | int | None:
    """Six digits are enough to draw; JSON has no NaN."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(f"{value:.6g}")


def _read(path: Path) -> Run:
    try:
        head, *rows, outcome = map(json.loads, path.read_text().splitlines())
        history = [[math.nan if value is None else value for value in row] for row in rows]
        return Run(head["specification"], head["machine"], head["columns"], history, Outcome(**outcome))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a run ({error}). Remove it, and it is run again.") from error
