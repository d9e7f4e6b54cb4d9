"""How the methods choose their start and learning rate: from a printed grid, by runs that are not reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lysep.studies.paper import DATA_SEED, GRIDS, TUNING_DATA_SEED, Cell, table_of
from lysep.studies.runs import Run, Store


@dataclass(frozen=True)
class Effort:
    """How much is run: of what is reported, and of what is only chosen by."""

    sweeps: int
    seeds: int
    tuning_sweeps: int
    tuning_seeds: Sequence[int]


@dataclass(frozen=True)
class Choice:
    start: str
    options: dict[str, float]


def candidates(cell: Cell) -> list[Choice]:
    """What a method may choose from; one entry: nothing to choose."""
    grid = GRIDS[cell.problem][cell.method]
    options: list[dict[str, float]] = [{} if rate is None else {"learning_rate": rate} for rate in grid.rates]
    return [Choice(start, some) for start in grid.starts for some in options]


def tuning_specifications(cell: Cell, choice: Choice, effort: Effort) -> list[dict[str, Any]]:
    table = table_of(cell)
    sweeps = min(effort.tuning_sweeps, table.tuning_sweeps, effort.sweeps)
    return [
        table.tuning_cell(cell).specification(seed, sweeps, TUNING_DATA_SEED, choice.start, **choice.options)
        for seed in effort.tuning_seeds
    ]


def all_tuning_specifications(cell: Cell, effort: Effort) -> list[dict[str, Any]]:
    found = candidates(cell)
    if len(found) == 1:
        return []
    return [specification for choice in found for specification in tuning_specifications(cell, choice, effort)]


def choose(cell: Cell, effort: Effort, store: Store) -> Choice | None:
    """The candidate with the lowest loss; None while not all of them have been run."""
    found = candidates(cell)
    if len(found) == 1:
        return found[0]
    losses = []
    for choice in found:
        runs = [store.get(specification) for specification in tuning_specifications(cell, choice, effort)]
        if None in runs:
            return None
        losses.append(sum(late_loss(run) for run in runs if run is not None) / len(runs))
    return found[min(range(len(found)), key=losses.__getitem__)]


def late_loss(run: Run) -> float:
    """The mean training loss of the rows of a run's last quarter, since single steps jump; infinite if it failed."""
    if not run.ok:
        return math.inf
    late = [
        loss
        for sweep, loss in zip(run.column("sweep"), run.column("cross_entropy"), strict=True)
        if sweep > 0.75 * run.outcome.sweeps
    ]
    return sum(late) / len(late)


def reported_specifications(cell: Cell, choice: Choice, effort: Effort) -> list[dict[str, Any]]:
    return [
        cell.specification(seed, effort.sweeps, DATA_SEED, choice.start, **choice.options)
        for seed in range(effort.seeds)
    ]
