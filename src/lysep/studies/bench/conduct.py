"""The comparisons themselves: settings are chosen, seeds are run, and no run that is there already is made again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

import torch

from lysep.studies.bench.problems import THRESHOLDS, Problem
from lysep.studies.bench.summary import lowest
from lysep.studies.bench.training import Candidate, Task, train
from lysep.studies.bench.tuning import Family, done, most_runs, tuned
from lysep.studies.runs import Run, Store
from lysep.text import duration

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """Every family, at its best, on every problem and every one of its seeds."""

    problems: Sequence[Problem]
    families: Sequence[Family]

    def cost(self) -> tuple[int, float]:
        """Runs and seconds of training at most; runs that reach their goal end sooner."""
        choices = [most_runs(self.families, problem) for problem in self.problems]
        reported = [(len(self.families) * p.seeds, p.budget) for p in self.problems]
        seconds = sum(seconds for _, seconds in choices) + sum(count * budget for count, budget in reported)
        return sum(count for count, _ in [*choices, *reported]), seconds


@dataclass(frozen=True)
class Entry:
    """A cell of the tables: what a family chose on a problem, and its run of every seed."""

    problem: Problem
    family: Family
    candidate: Candidate
    runs: Sequence[Run]


class Runner:
    """Does tasks, each at most once ever: a finished run is a file in the store. Use it in a `with` block."""

    def __init__(self, store: Store, jobs: int, planned: tuple[int, float], say: Say) -> None:
        self._store, self._jobs, self._say = store, jobs, say
        self._planned, self._left = planned
        self._done = 0
        self._pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin_worker) if jobs > 1 else None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, tasks: Sequence[Task]) -> list[Run]:
        missing = [task for task in tasks if task.specification not in self._store]
        for task in tasks:
            if task not in missing:
                self._count(task)
        if self._pool is None:
            for task in missing:
                self._keep(task, train(task))
        else:
            running = {self._pool.submit(train, task): task for task in missing}
            for future in as_completed(running):
                self._keep(running[future], future.result())
        return [run for run in (self._store.get(task.specification) for task in tasks) if run is not None]

    def _keep(self, task: Task, run: Run) -> None:
        self._store.save(run)
        self._count(task)
        self._say(
            f"[{self._done}/{self._planned}] {task.problem.title}, {task.candidate.title}, seed {task.seed}: "
            f"{run.outcome.ended} after {run.outcome.seconds:.2f} s at cross-entropy {lowest(run):.2g}; "
            f"at most {duration(self._left / self._jobs)} of training left"
        )

    def _count(self, task: Task) -> None:
        self._done += 1
        self._left = max(0.0, self._left - task.budget)


def compare(comparison: Comparison, runner: Callable[[Sequence[Task]], list[Run]]) -> list[Entry]:
    """Choose and run, problem by problem. Families that chose the same share their runs.

    They take turns, seed by seed: a machine that gets slower, or busier, does so for all of them.
    """
    entries = []
    for problem in comparison.problems:
        until = min(THRESHOLDS) if problem.target is not None else None
        chosen = tuned(comparison.families, problem, runner)
        tasks = {
            name: [Task(problem, candidate, seed, problem.budget, until) for seed in range(problem.seeds)]
            for name, candidate in chosen.items()
        }
        in_turn = [task for of_seed in zip(*tasks.values(), strict=True) for task in of_seed]
        runs = done(runner, in_turn)
        entries += [
            Entry(problem, family, chosen[family.name], [runs[task] for task in tasks[family.name]])
            for family in comparison.families
        ]
    return entries


def shortened(comparison: Comparison) -> Comparison:
    """A rehearsal of seconds: the first problem, two seeds, a fifteenth of the time, and few candidates."""
    first = comparison.problems[0]
    problem = replace(first, budget=first.budget / 15, seeds=2)
    families = [replace(f, candidates=partial(_first, f.candidates)) for f in comparison.families]
    return Comparison([problem], families)


def _first(candidates: Callable[[Problem], list[Candidate]], problem: Problem) -> list[Candidate]:
    return candidates(problem)[:2]


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    torch.set_num_threads(1)
