"""How the methods choose their start and learning rate: from a printed grid, by runs that are not reported."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from lysep.studies.paper import DATA_SEED, GRIDS, TUNING_DATA_SEED, Cell, Table, table_of
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
        for seed in effort.tuning_seeds[: table.tuning_seeds]
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


@dataclass(frozen=True)
class Trials:
    """What a method chose from on one network: the mean loss by start and learning rate; infinite if a run failed."""

    network: tuple[int, int]
    method: str
    sweeps: int
    seeds: int
    losses: dict[tuple[str, float | None], float]

    @property
    def lowest(self) -> tuple[str, float | None]:
        return min(self.losses, key=self.losses.__getitem__)

    @property
    def at_an_edge(self) -> bool:
        """Whether a learning rate beyond those of the grid might have done better still."""
        rates = {rate for _, rate in self.losses if rate is not None}
        return len(rates) > 2 and self.lowest[1] in (min(rates), max(rates))


def trials(table: Table, runs: Iterable[Run]) -> list[Trials]:
    """What was tried of every network and method, in the table's order; of trials of several lengths the longest."""
    losses: dict[_Kind, dict[tuple[str, float | None], list[float]]] = defaultdict(lambda: defaultdict(list))
    seeds: dict[_Kind, set[int]] = defaultdict(set)
    for run in runs:
        s = run.specification
        if s["problem"] == table.problem and s["data_seed"] == TUNING_DATA_SEED:
            first, second = s["network"]
            kind = ((first, second), s["method"], s["sweeps"])
            losses[kind][s["start"], s.get("learning_rate")].append(late_loss(run))
            seeds[kind].add(s["seed"])
    longest = {kind[:2]: kind for kind in sorted(losses, key=lambda kind: kind[2])}
    keys = dict.fromkeys((cell.network, cell.method) for cell in table.cells)
    kinds = [longest[key] for key in keys if key in longest]
    return [Trials(*kind, len(seeds[kind]), {c: mean(v) for c, v in losses[kind].items()}) for kind in kinds]


_Kind = tuple[tuple[int, int], str, int]  # network, method, iterations
