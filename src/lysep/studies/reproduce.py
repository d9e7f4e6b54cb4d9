"""From the name of a table or figure to the runs that it needs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from lysep.studies.execute import load
from lysep.studies.paper import SEEDS, SWEEPS, TUNING_SEEDS, TUNING_SWEEPS, Cell, cells_of
from lysep.studies.runs import Store
from lysep.studies.tuning import Effort, all_tuning_specifications, candidates, choose, reported_specifications
from lysep.studies.workers import Job, Tally, Workers
from lysep.text import duration

FULL = Effort(SWEEPS, SEEDS, TUNING_SWEEPS, TUNING_SEEDS)
QUICK = Effort(40, 2, 20, TUNING_SEEDS[:1])

Say = Callable[[str], object]


def reproduce(
    name: str,
    store: Store,
    effort: Effort = FULL,
    *,
    only: Sequence[str] = (),
    data: str = "mnist",
    jobs: int = 1,
    device: str = "cpu",
    minutes: float | None = None,
    say: Say = print,
) -> None:
    """Run what a table, a figure or "all" needs and the store does not have yet."""
    cells = cells_of(name, only, data)
    _check(effort, jobs, device)
    deadline = None if minutes is None else time.monotonic() + 60.0 * minutes
    tuning = _missing((s for cell in cells for s in all_tuning_specifications(cell, effort)), store)
    expected = _reported(cells, effort, store, guess=True)
    wanted = _missing(expected, store)
    say(f"{name}: {len(expected)} runs, {len(expected) - len(wanted)} of them done; {len(tuning)} runs to tune by")
    if not wanted and not tuning:
        return
    for specification in _distinct([*tuning, *wanted]):
        load(specification)  # data that cannot be had are an error now, not in every run
    with Workers(jobs, device) as workers:
        jobs_of = _measure([*tuning, *wanted], workers, say)
        costs = [job.cost for job in jobs_of([*tuning, *wanted])]
        say(f"{len(costs)} runs to do: about {duration(max(sum(costs) / jobs, *costs))} with {jobs} process(es)")
        _report(workers.run(jobs_of(tuning), store, "tuning", deadline), store, say)
        wanted = _missing(_reported(cells, effort, store), store)
        _report(workers.run(jobs_of(wanted), store, name, deadline), store, say)


def _reported(cells: Iterable[Cell], effort: Effort, store: Store, guess: bool = False) -> list[dict[str, Any]]:
    """The runs that tables are made of, as far as it is known which they are.

    `guess`: where nothing is chosen yet, as if the first candidate were; which it is changes no cost.
    """
    found = []
    for cell in cells:
        choice = choose(cell, effort, store) or (candidates(cell)[0] if guess else None)
        if choice is not None:
            found += reported_specifications(cell, choice, effort)
    return found


def _check(effort: Effort, jobs: int, device: str) -> None:
    """Refuse what could not be run, before anything is."""
    if jobs < 1:
        raise ValueError(f"jobs={jobs} must be a positive number of processes.")
    if effort.sweeps < 1:
        raise ValueError(f"sweeps={effort.sweeps} must be a positive number of iterations.")
    if not 1 <= effort.seeds <= min(effort.tuning_seeds):
        raise ValueError(
            f"seeds={effort.seeds} must be 1 to {min(effort.tuning_seeds)}: the seeds beyond are tuned on."
        )
    try:
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError) as error:  # as PyTorch has it, by version
        raise ValueError(f"device={device!r} cannot be used here: {error}") from error


def _missing(specifications: Iterable[dict[str, Any]], store: Store) -> list[dict[str, Any]]:
    """Those not in the store, each once: time slices share their tuning."""
    return list({json.dumps(s, sort_keys=True): s for s in specifications if s not in store}.values())


def _distinct(specifications: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One specification of every set of data."""
    return list({(s["problem"], s.get("time"), s["data_seed"]): s for s in specifications}.values())


def _measure(
    specifications: Sequence[dict[str, Any]], workers: Workers, say: Say
) -> Callable[[Iterable[dict[str, Any]]], list[Job]]:
    """Measure seconds a sweep by problem, network and method. Returns what makes jobs of specifications, in order."""

    def kind(s: dict[str, Any]) -> tuple[Any, ...]:
        return s["problem"], *s["network"], s["method"]

    def jobs_of(specifications: Iterable[dict[str, Any]]) -> list[Job]:
        found = [Job(s, seconds[kind(s)] * s["sweeps"]) for s in specifications]
        # Seed by seed: even when time runs out. The longest first: so all processes end together.
        return sorted(found, key=lambda job: (job.specification["seed"], -job.cost))

    examples = {kind(s): s for s in specifications}
    say(f"measuring what {len(examples)} kinds of runs cost")
    seconds = dict(zip(examples, workers.seconds_per_sweep(list(examples.values())), strict=True))
    return jobs_of


def _report(tally: Tally, store: Store, say: Say) -> None:
    if tally.failed:
        say(f"{tally.failed} of {tally.finished} runs failed: {store.folder} says why. To try again, remove the file.")
    if tally.left_out:
        say(f"{tally.left_out} runs were not begun: they would not have ended in time. Give the command again.")
