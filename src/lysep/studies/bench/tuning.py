"""Who takes part, what each may choose, and how the choice is made: the same way for everybody."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from lysep.studies.bench.problems import Problem
from lysep.studies.bench.summary import accuracies, lowest, seconds_to, spread
from lysep.studies.bench.training import Candidate, Task
from lysep.studies.runs import Run

RATES = {
    "gd": (0.3, 1.0),
    "momentum": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "adam": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "lbfgs-single": (0.3, 1.0),
    "muon": (3e-3, 1e-2, 3e-2, 1e-1),
}
_STARTS = ("pytorch", "xavier", "measured")

_SCREEN_SEEDS, _FINAL_SEEDS = (100,), (101, 102)  # apart from those that are reported
_SCREEN_SHARE = 1 / 4  # of the budget
_FINALISTS = 2


@dataclass(frozen=True)
class Family:
    """A row of the tables: candidates of which one is chosen for each problem."""

    name: str
    ours: bool
    candidates: Callable[[Problem], list[Candidate]]


def _optimizers(*methods: str) -> Callable[[Problem], list[Candidate]]:
    def candidates(problem: Problem) -> list[Candidate]:
        schedules = problem.lbfgs if methods == ("lbfgs-single",) else problem.gradient
        return [
            Candidate(method, start, rate, batches)
            for method in methods
            for start, rate, batches in product(_STARTS, RATES[method], schedules)
        ]

    return candidates


def _separation(method: str, starts: Sequence[str]) -> Callable[[Problem], list[Candidate]]:
    def candidates(problem: Problem) -> list[Candidate]:
        return [Candidate(method, start, None, batches) for start, batches in product(starts, problem.separation)]

    return candidates


ADAM = Family("Adam", False, _optimizers("adam"))
LBFGS = Family("L-BFGS", False, _optimizers("lbfgs-single"))
SGD = Family("SGD", False, _optimizers("gd", "momentum"))
MUON = Family("Muon", False, _optimizers("muon"))
PAPER_GIVEN = Family("paper, PyTorch's start", True, _separation("paper", ("pytorch",)))
PAPER_BEST = Family("paper, best start", True, _separation("paper", ("separation", *_STARTS)))
FAST_GIVEN = Family("fast, PyTorch's start", True, _separation("fast", ("pytorch",)))
FAST_BEST = Family("fast, best start", True, _separation("fast", _STARTS))


def at_an_edge(family: Family, problem: Problem, candidate: Candidate) -> bool:
    """Whether a learning rate beyond those that the family may choose might have done better still.

    Fewer than three have no edges: with a line search, as in L-BFGS, a rate of 1 is the natural one.
    """
    rates = {c.lr for c in family.candidates(problem) if c.method == candidate.method and c.lr is not None}
    return len(rates) > 2 and candidate.lr in (min(rates), max(rates))


RunAll = Callable[[Sequence[Task]], list[Run]]


def tuned(families: Sequence[Family], problem: Problem, run_all: RunAll) -> dict[str, Candidate]:
    """The candidate of every family: all of them on one seed for a quarter of the budget, the best two on two more."""
    chosen = {f.name: f.candidates(problem) for f in families}
    for seeds, share, survivors in ((_SCREEN_SEEDS, _SCREEN_SHARE, _FINALISTS), (_FINAL_SEEDS, 1.0, 1)):
        budget = share * problem.budget

        def tasks(candidate: Candidate, seeds: Sequence[int] = seeds, budget: float = budget) -> list[Task]:
            return [Task(problem, candidate, seed, budget, problem.target, tuning=True) for seed in seeds]

        open_ = [name for name, candidates in chosen.items() if len(candidates) > survivors]
        runs = done(run_all, [task for name in open_ for candidate in chosen[name] for task in tasks(candidate)])
        for name in open_:
            tried = {candidate: [runs[task] for task in tasks(candidate)] for candidate in chosen[name]}
            chosen[name] = ranked(tried, problem.target)[:survivors]
    return {name: candidates[0] for name, candidates in chosen.items()}


def most_runs(families: Sequence[Family], problem: Problem) -> tuple[int, float]:
    """How many runs the choice takes at most, and their budgets in seconds."""
    counts = [count for count in (len(f.candidates(problem)) for f in families) if count > 1]
    screens = len(_SCREEN_SEEDS) * sum(count for count in counts if count > _FINALISTS)
    finals = len(_FINAL_SEEDS) * sum(min(_FINALISTS, count) for count in counts)
    return screens + finals, problem.budget * (_SCREEN_SHARE * screens + finals)


def done(run_all: RunAll, tasks: Iterable[Task]) -> dict[Task, Run]:
    """Every task once, in an order that does not depend on who asks for it."""
    ordered = list(dict.fromkeys(tasks))
    return dict(zip(ordered, run_all(ordered), strict=True))


def ranked(tried: Mapping[Candidate, Sequence[Run]], target: float | None) -> list[Candidate]:
    """Best first: by how often the target was reached, then the median time, then how near the runs came.

    Without a target, by held-out accuracy, averaged over the times at which it is read.
    """

    def key(candidate: Candidate) -> tuple[float, ...]:
        runs = tried[candidate]
        if target is None:
            return (-sum(sum(accuracies(run)) for run in runs),)
        times = [seconds_to(run, target) for run in runs]
        nearness = sum(math.log(max(lowest(run), 1e-300)) for run in runs)
        return (sum(map(math.isinf, times)), spread(times).median, nearness)

    return sorted(tried, key=key)
