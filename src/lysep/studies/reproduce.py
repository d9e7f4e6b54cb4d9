"""From the name of a table or figure to the runs that it needs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lysep.studies.execute import load
from lysep.studies.paper import SEEDS, SWEEPS, TUNING_SEEDS, TUNING_SWEEPS, Cell, cells_of
from lysep.studies.runs import Store
from lysep.studies.tuning import Effort, all_tuning_specifications, candidates, choose, reported_specifications
from lysep.studies.workers import Job, Tally, Workers

FULL = Effort(SWEEPS, SEEDS, TUNING_SWEEPS, TUNING_SEEDS)
QUICK = Effort(100, 2, 20, TUNING_SEEDS[:1])

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
) -> list[Cell]:
    """Run what a table, a figure or "all" needs and the store does not have yet. Returns the cells it is made of."""
    cells = cells_of(name, only, data)
    deadline = None if minutes is None else time.monotonic() + 60.0 * minutes
    tuning = _missing((s for cell in cells for s in all_tuning_specifications(cell, effort)), store)
    # What is chosen changes no cost: the first candidate stands for it.
    expected = [
        (c, s) for c in cells for s in reported_specifications(c, choose(c, effort, store) or candidates(c)[0], effort)
    ]
    wanted = [(c, s) for c, s in expected if s not in store]
    say(f"{name}: {len(expected)} runs, {len(expected) - len(wanted)} of them done; {len(tuning)} runs to tune by")
    if not wanted and not tuning:
        return cells
    for specification in _distinct(s for s in [*tuning, *(s for _, s in wanted)]):
        load(specification)  # data that cannot be had are an error now, not in every run
    with Workers(jobs, device) as workers:
        per_sweep = _measure([*tuning, *(s for _, s in wanted)], workers, say)

        def jobs_of(specifications: Iterable[dict[str, Any]]) -> list[Job]:
            found = [Job(s, per_sweep(s) * s["sweeps"]) for s in specifications]
            # Seed by seed: even when time runs out. The longest first: so all processes end together.
            return sorted(found, key=lambda job: (job.specification["seed"], -job.cost))

        total = sum(job.cost for job in jobs_of([*tuning, *(s for _, s in wanted)]))
        say(f"{len(tuning) + len(wanted)} runs to do: about {_duration(total / jobs)} with {jobs} process(es)")
        _report(workers.run(jobs_of(tuning), store, "tuning", deadline), store, say)
        reported = []
        for cell in cells:
            choice = choose(cell, effort, store)
            if choice is not None:
                reported += reported_specifications(cell, choice, effort)
        _report(workers.run(jobs_of(_missing(reported, store)), store, name, deadline), store, say)
    return cells


def _missing(specifications: Iterable[dict[str, Any]], store: Store) -> list[dict[str, Any]]:
    """Those not in the store, each once: time slices share their tuning."""
    return list({json.dumps(s, sort_keys=True): s for s in specifications if s not in store}.values())


def _distinct(specifications: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One specification of every set of data."""
    return list({(s["problem"], s.get("time"), s["data_seed"]): s for s in specifications}.values())


def _measure(specifications: Sequence[dict[str, Any]], workers: Workers, say: Say) -> Callable[[dict[str, Any]], float]:
    """Seconds a sweep, by problem, network and method."""

    def kind(s: dict[str, Any]) -> tuple[Any, ...]:
        return s["problem"], *s["network"], s["method"]

    examples = {kind(s): s for s in specifications}
    say(f"measuring what {len(examples)} kinds of runs cost")
    seconds = dict(zip(examples, workers.seconds_per_sweep(list(examples.values())), strict=True))
    return lambda specification: seconds[kind(specification)]


def _report(tally: Tally, store: Store, say: Say) -> None:
    if tally.failed:
        say(f"{tally.failed} of {tally.finished} runs failed: {store.folder} says why. To try again, remove the file.")
    if tally.left_out:
        say(f"{tally.left_out} runs were not begun: they would not have ended in time. Give the command again.")


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60.0:.0f} minutes" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} hours"
