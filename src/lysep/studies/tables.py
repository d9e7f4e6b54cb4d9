"""Runs to rows: what was reached, by how many seeds, beside what the paper prints. Reads runs and nothing else."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, NamedTuple

from lysep.studies.paper import DATA_SEED, METHODS, PRINTED_AS, Cell, Table
from lysep.studies.paper_values import PaperValue, Place, Spread, paper_values
from lysep.studies.runs import Run
from lysep.studies.tuning import trials

_OF_A_RUN = ("seed",)  # what may differ among the runs of one row
WITHIN = 2.0  # of the paper's standard deviations: as good as the paper


@dataclass(frozen=True)
class Row:
    """The runs of one cell, and what the paper has there."""

    cell: Cell
    runs: Sequence[Run]
    failed: Sequence[Run]

    @property
    def seeds(self) -> int:
        """How many were really run to their end."""
        return len(self.runs)

    @property
    def specification(self) -> dict[str, Any]:
        """What all of its runs have in common."""
        return {k: v for k, v in (*self.runs, *self.failed)[0].specification.items() if k not in _OF_A_RUN}

    def spread(self, data: str, measure: str) -> Spread | None:
        """Mean and standard deviation over the seeds that did not fail; of one seed the deviation is NaN."""
        values = [run.outcome.scores[data][measure] for run in self.runs if data in run.outcome.scores]
        if not values:
            return None
        return Spread(mean(values), stdev(values) if len(values) > 1 else math.nan)

    def best(self) -> Run | None:
        """The run of the lowest training loss: the paper's "best seed"."""
        return min(self.runs, key=lambda run: run.outcome.scores["train"]["cross_entropy"], default=None)


def comparable(table: Table) -> str:
    """The data whose scores the paper's training figures are compared with."""
    return "train" if table.batch_size is None else "last_batch"


def rows(table: Table, runs: Sequence[Run]) -> list[Row | Cell]:
    """One entry a cell, in the table's order; the cell itself where nothing was run.

    A row's runs differ by their seed alone. Where several sets of them are there, it is the one of most sweeps; of
    those, the one with the start and learning rate that did best in the trials; then the one of most seeds.
    """
    sets: dict[Cell, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.specification["problem"] == table.problem and run.specification["data_seed"] == DATA_SEED:
            common = {k: v for k, v in run.specification.items() if k not in _OF_A_RUN}
            sets[_cell(run)][json.dumps(common, sort_keys=True)].append(run)
    best = {(tried.network, tried.method): tried.lowest for tried in trials(table, runs)}
    return [
        _row(cell, list(sets[cell].values()), best.get((cell.network, cell.method))) if cell in sets else cell
        for cell in table.cells
    ]


def _row(cell: Cell, sets: Sequence[Sequence[Run]], best: tuple[str, float | None] | None) -> Row:
    def rank(runs: Sequence[Run]) -> tuple[int, bool, int]:
        s = runs[0].specification
        return int(s["sweeps"]), (s["start"], s.get("learning_rate")) == best, len(runs)

    chosen = max(sets, key=rank)
    ordered = sorted(chosen, key=lambda run: int(run.specification["seed"]))
    return Row(cell, [run for run in ordered if run.ok], [run for run in ordered if not run.ok])


def _cell(run: Run) -> Cell:
    s = run.specification
    return Cell(s["problem"], tuple(s["network"]), s["method"], s.get("time"), s["batch_size"])


def printed(table: Table, cell: Cell) -> PaperValue | None:
    """What the paper prints there; nothing for methods that it does not have, and for stand-ins of its data."""
    if table.stand_in or cell.method not in PRINTED_AS:
        return None
    return paper_values()[Place(table.name, cell.network, PRINTED_AS[cell.method], cell.time)]


def difference(ours: Spread | None, theirs: Spread | None) -> float | None:
    """How far our mean lies from the paper's, in the paper's standard deviations."""
    return None if ours is None or theirs is None else (ours.mean - theirs.mean) / theirs.deviation


class Head(NamedTuple):
    """A column's name, and that of the group it belongs to."""

    group: str
    name: str


class Entry(NamedTuple):
    """What stands in a table. `reached`: of layer separation, whether it is as good as the paper says."""

    text: str
    reached: bool | None = None


_DATA = {"train": "training", "test": "test", "last_batch": "last batch"}
_MEASURES = {"cross_entropy": "cross-entropy", "accuracy": "accuracy"}


def heads(table: Table) -> list[Head]:
    found = [f"({', '.join(table.names)})", *([] if table.times == (None,) else ["t"]), "method"]
    columns = [Head("", name) for name in (*found, "seeds", "failed", "iterations")]
    for measure in _MEASURES:
        group = f"{_DATA[comparable(table)]} {_MEASURES[measure]}"
        columns += [Head(group, name) for name in ("paper", "here", "difference")]
    columns += [Head(_DATA[data], _MEASURES[measure]) for data, measure in _beside(table)]
    return [*columns, Head("", "start, rate")]


def _beside(table: Table) -> list[tuple[str, str]]:
    """The scores that are shown beside the comparable ones."""
    if comparable(table) == "train":
        return [("test", "accuracy")]
    return [(data, measure) for data in ("train", "test") for measure in _MEASURES]


def entries(table: Table, row: Row | Cell) -> list[Entry]:
    """A row as people read it; one entry a column of `heads`."""
    cell = row.cell if isinstance(row, Row) else row
    first = [f"({cell.network[0]},{cell.network[1]})", *([] if cell.time is None else [f"{cell.time:g}"])]
    run = ["not run", "", ""]
    if isinstance(row, Row):
        run = [str(row.seeds), str(len(row.failed)), f"{row.specification['sweeps']:,}"]
    found = [Entry(text) for text in (*first, METHODS[cell.method], *run)]
    for measure in _MEASURES:
        ours, theirs = _both(table, row, measure)
        found += [Entry(_text(theirs, measure)), Entry(_text(ours, measure)), _difference(cell, ours, theirs, measure)]
    if not isinstance(row, Row):
        return [*found, *(Entry("") for _ in (*_beside(table), "start"))]
    found += [Entry(_text(row.spread(*other), other[1])) for other in _beside(table)]
    rate = row.specification.get("learning_rate")
    return [*found, Entry(row.specification["start"] + ("" if rate is None else f", {rate:g}"))]


def _both(table: Table, row: Row | Cell, measure: str) -> tuple[Spread | None, Spread | None]:
    """Our figure and the paper's."""
    value = printed(table, row.cell if isinstance(row, Row) else row)
    ours = row.spread(comparable(table), measure) if isinstance(row, Row) else None
    return ours, None if value is None else getattr(value, measure)


def _text(spread: Spread | None, measure: str) -> str:
    if spread is None:
        return ""
    form = ".2e" if measure == "cross_entropy" else ".2%"
    return f"{spread.mean:{form}}" + ("" if math.isnan(spread.deviation) else f" ± {spread.deviation:{form}}")


def _difference(cell: Cell, ours: Spread | None, theirs: Spread | None, measure: str) -> Entry:
    value, worse = difference(ours, theirs), _worse(ours, theirs, measure)
    if value is None or worse is None:
        return Entry("")
    return Entry(f"{value:+.1f}", worse <= WITHIN if cell.method == "paper" else None)


def _worse(ours: Spread | None, theirs: Spread | None, measure: str) -> float | None:
    value = difference(ours, theirs)
    return None if value is None else value if measure == "cross_entropy" else -value


def markdown(table: Table, found: Sequence[Row | Cell]) -> str:
    names = [" ".join(filter(None, head)) for head in heads(table)]
    lines = [names, ["---"] * len(names), *([entry.text for entry in entries(table, row)] for row in found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def apart(table: Table, found: Sequence[Row | Cell], method: str, better: bool) -> list[str]:
    """The rows of a method that are better, or worse, than the paper's by more than two of its standard deviations."""
    names = []
    for row in found:
        if isinstance(row, Row) and row.cell.method == method:
            by = [_worse(*_both(table, row, measure), measure) for measure in _MEASURES]
            if any(d is not None and (-d if better else d) > WITHIN for d in by):
                first, second = row.cell.network
                names.append(f"({first},{second})" + ("" if row.cell.time is None else f" at t = {row.cell.time:g}"))
    return names
