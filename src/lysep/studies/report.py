"""One page, and its parts as Markdown, PNG and SVG: drawn from a folder of runs and from nothing else."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import mean
from typing import Any

from lysep.studies import figures, page
from lysep.studies.paper import ALL_TABLES, DATA_SEED, FIGURES, METHODS, SEEDS, SWEEPS, TUNING_DATA_SEED, Cell, Table
from lysep.studies.runs import Run, Store
from lysep.studies.tables import Row, heads, markdown, missed, rows
from lysep.studies.tuning import late_loss

CAPTIONS = {
    "figure1": "Figure 1: the test samples of the circle problem with their labels. The line is the true boundary.",
    "figure2": "Figure 2: training cross-entropy and accuracy against iterations; mean over seeds, the band is one "
    "standard deviation. Both axes of the loss are logarithmic. An iteration of L-BFGS is one of its own.",
    "figure3": "Figure 3: test samples of the circle problem as classified by the best seed of each method (the one of "
    "lowest training loss). Black squares are misclassified; the line is the true boundary.",
    "figure4": "Figure 4: the solution of the Allen-Cahn equation, and the test samples as classified by the best seed "
    "of each method on the (20,20) network. Black squares are misclassified; the line is the true interface.",
}


@dataclass(frozen=True)
class Grid:
    """What a method chose from on one network: the mean loss of every start and learning rate; None if it failed."""

    network: tuple[int, int]
    method: str
    sweeps: int
    seeds: int
    losses: dict[tuple[str, float | None], float]


def write_report(store: Store, out: Path) -> Path:
    """Draw everything that the runs allow, and say what they do not. Returns the page."""
    runs = list(store)
    if not runs:
        raise ValueError(f"{store.folder} holds no runs. Make some: lysep reproduce table1 --quick.")
    out.mkdir(parents=True, exist_ok=True)
    tables = {table: rows(table, runs) for table in ALL_TABLES}
    shown = {table: found for table, found in tables.items() if not table.stand_in or _rows(found)}
    sections = [page.table(table, found, notes(table, found), grids(table, runs)) for table, found in shown.items()]
    for table, found in shown.items():
        text = f"# {table.title}\n\n{markdown(table, found)}\n{''.join(f'- {note}\n' for note in notes(table, found))}"
        (out / f"{_file_name(table)}.md").write_text(text)
    by_cell = {row.cell: row for found in tables.values() for row in _rows(found)}
    sections += [_figure(name, by_cell, out) for name in FIGURES]
    sections += [page.failures([run for run in runs if not run.ok]), page.machines(machines(runs))]
    target = out / "index.html"
    target.write_text(page.whole(sections))
    return target


def _figure(name: str, by_cell: dict[Cell, Row], out: Path) -> str:
    figure = figures.draw(name, by_cell)
    if figure is None:
        return page.missing_figure(name, CAPTIONS[name], f"Not run. lysep reproduce {name} makes what it needs.")
    for kind in ("png", "svg"):
        figure.savefig(out / f"{name}.{kind}", dpi=160)
    return page.figure(name, CAPTIONS[name], (out / f"{name}.svg").read_bytes())


def _rows(found: Sequence[Row | Cell]) -> list[Row]:
    return [row for row in found if isinstance(row, Row)]


def _file_name(table: Table) -> str:
    return f"{table.name}-{table.problem}" if table.stand_in else table.name
