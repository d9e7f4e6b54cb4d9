"""Runs to rows: what was reached, by how many seeds, beside what the paper prints. Reads runs and nothing else."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from lysep.studies.paper import DATA_SEED, METHODS, Cell, Table
from lysep.studies.printed import Spread, printed
from lysep.studies.runs import Run

_OF_A_RUN = ("seed",)  # what may differ among the runs of one row


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


def rows(table: Table, runs: Iterable[Run]) -> list[Row | Cell]:
    """One entry a cell, in the table's order; the cell itself where nothing was run.

    A cell's runs differ by their seed alone. Where several sets of them are there (trials with fewer sweeps, say), the
    one of most sweeps is taken, and of those the one of most seeds.
    """
    sets: dict[Cell, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.specification["problem"] == table.problem and run.specification["data_seed"] == DATA_SEED:
            common = {k: v for k, v in run.specification.items() if k not in _OF_A_RUN}
            sets[_cell(run)][json.dumps(common, sort_keys=True)].append(run)
    return [_row(cell, list(sets[cell].values())) if cell in sets else cell for cell in table.cells]


def _row(cell: Cell, sets: Sequence[list[Run]]) -> Row:
    chosen = max(sets, key=lambda runs: (runs[0].specification["sweeps"], len(runs)))
    chosen = sorted(chosen, key=lambda run: int(run.specification["seed"]))
    return Row(cell, [run for run in chosen if run.ok], [run for run in chosen if not run.ok])


def _cell(run: Run) -> Cell:
    s = run.specification
    return Cell(s["problem"], tuple(s["network"]), s["method"], s.get("time"), s["batch_size"])


def difference(ours: Spread | None, theirs: Spread | None) -> float | None:
    """How far our mean lies from the paper's, in the paper's standard deviations."""
    return None if ours is None or theirs is None else (ours.mean - theirs.mean) / theirs.deviation


def heads(table: Table) -> list[str]:
    found = [f"({', '.join(table.names)})"] + ([] if table.times == (None,) else ["t"]) + ["Method"]
    if comparable(table) == "last_batch":
        found += _measures("last batch") + [
            f"{data}, {measure}" for data in ("all training images", "test images") for measure in ("loss", "accuracy")
        ]
    else:
        found += [*_measures("training"), "test accuracy"]
    return [*found, "seeds", "failed", "iterations", "start, learning rate"]


def _measures(data: str) -> list[str]:
    return [f"{data} {measure}: {what}" for measure in ("loss", "accuracy") for what in ("paper", "here", "difference")]


def texts(table: Table, row: Row | Cell) -> list[str]:
    """A row as people read it; one text a column of `heads`."""
    cell = row.cell if isinstance(row, Row) else row
    found = [f"({cell.network[0]},{cell.network[1]})"]
    if cell.time is not None:
        found.append(f"{cell.time:g}")
    found.append(METHODS[cell.method])
    for measure in ("cross_entropy", "accuracy"):
        ours = row.spread(comparable(table), measure) if isinstance(row, Row) else None
        theirs = printed(cell, measure)
        found += [_spread(theirs, measure), _spread(ours, measure), _difference(difference(ours, theirs))]
    others = [("test", "accuracy")]
    if comparable(table) == "last_batch":
        others = [(data, measure) for data in ("train", "test") for measure in ("cross_entropy", "accuracy")]
    if not isinstance(row, Row):
        return [*found, *("" for _ in others), "not run", "", "", ""]
    found += [_spread(row.spread(*other), other[1]) for other in others]
    s = row.specification
    rate = f", {s['learning_rate']:g}" if "learning_rate" in s else ""
    return [*found, str(row.seeds), str(len(row.failed)), f"{s['sweeps']:,}", f"{s['start']}{rate}"]


def _spread(spread: Spread | None, measure: str) -> str:
    if spread is None:
        return ""
    form = ".2e" if measure == "cross_entropy" else ".2%"
    return f"{spread.mean:{form}}" + ("" if math.isnan(spread.deviation) else f" ± {spread.deviation:{form}}")


def _difference(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} sd"


def markdown(table: Table, found: Sequence[Row | Cell]) -> str:
    lines = [heads(table), ["---"] * len(heads(table)), *(texts(table, row) for row in found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
