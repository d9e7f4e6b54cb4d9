"""What is read from the record of a run, and from several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from lysep.studies.bench.problems import FRACTIONS
from lysep.studies.runs import Run


class Spread(NamedTuple):
    """Median and quartiles; `reached` of `runs` are finite. A run that failed counts as infinite."""

    low: float
    median: float
    high: float
    reached: int
    runs: int


def seconds_to(run: Run, threshold: float) -> float:
    """Seconds until the training cross-entropy was first seen at the threshold or below; infinite if never."""
    return _first(run, "seconds", threshold)


def steps_to(run: Run, threshold: float) -> float:
    """The same in sweeps or steps."""
    return _first(run, "step", threshold)


def _first(run: Run, column: str, threshold: float) -> float:
    if not run.ok:
        return math.inf
    pairs = zip(run.column(column), run.column("cross_entropy"), strict=True)
    return next((value for value, loss in pairs if loss <= threshold), math.inf)


def lowest(run: Run) -> float:
    """The lowest training cross-entropy that was seen."""
    return min((loss for loss in run.column("cross_entropy") if math.isfinite(loss)), default=math.inf)


def accuracy_at(run: Run, seconds: float) -> float:
    """Held-out accuracy of the model as it was then: at the last score before. Zero for a run that failed."""
    if not run.ok:
        return 0.0
    pairs = zip(run.column("seconds"), run.column("test_accuracy"), strict=True)
    return [accuracy for scored, accuracy in pairs if scored <= seconds][-1]


def accuracies(run: Run) -> list[float]:
    """Held-out accuracy at the times at which it is read: fractions of the run's budget."""
    budget = run.specification["budget"]
    return [accuracy_at(run, fraction * budget) for fraction in FRACTIONS]


def spread(values: Sequence[float]) -> Spread:
    low, median, high = (_quantile(sorted(values), q) for q in (0.25, 0.5, 0.75))
    return Spread(low, median, high, sum(map(math.isfinite, values)), len(values))


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Linear between neighbours, as usual; infinite as soon as an infinite neighbour takes part."""
    place = q * (len(ordered) - 1)
    below, share = math.floor(place), place - math.floor(place)
    if share == 0.0:
        return ordered[below]
    return (1.0 - share) * ordered[below] + share * ordered[below + 1]
