"""The tables, and where layer separation loses: all of it drawn from the runs, nothing written by hand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from lysep import machine
from lysep.studies.bench.conduct import Entry
from lysep.studies.bench.problems import FRACTIONS, THRESHOLDS, Problem
from lysep.studies.bench.summary import Spread, accuracies, lowest, seconds_to, spread, steps_to
from lysep.studies.bench.tuning import at_an_edge
from lysep.studies.runs import Run


@dataclass(frozen=True)
class Measure:
    """One column group: a figure of a run, how it is written, and which way is better."""

    title: str
    value: Callable[[Run], float]
    text: Callable[[float], str]
    smaller_is_better: bool

    def of(self, entry: Entry) -> Spread:
        return spread([self.value(run) for run in entry.runs])


def time_measures() -> list[Measure]:
    return [
        Measure(f"{threshold:g}", lambda run, t=threshold: seconds_to(run, t), seconds_text, True)  # type: ignore[misc]
        for threshold in THRESHOLDS
    ]


def accuracy_measures(problem: Problem) -> list[Measure]:
    return [
        Measure(f"{fraction * problem.budget:g} s", lambda run, i=i: accuracies(run)[i], "{:.2%}".format, False)  # type: ignore[misc]
        for i, fraction in enumerate(FRACTIONS)
    ]


def ladder(entries: Sequence[Entry]) -> list[str]:
    """A table for every threshold: a row a family, a column a network."""
    problems, families = _problems(entries), list(dict.fromkeys(e.family for e in entries))
    lines = []
    for measure in time_measures():
        lines += ["", f"## Seconds to training cross-entropy {measure.title}", ""]
        lines += header(["method", *(p.title for p in problems)])
        for family in families:
            cells = [measure.of(e) for p in problems for e in entries if e.family is family and e.problem is p]
            lines.append(row([family.name, *(_cell(s, measure.text) for s in cells)]))
    return lines


def against_the_best(entries: Sequence[Entry]) -> list[str]:
    """Each row of ours as a share of the best optimizer's median time to the target that settings were chosen for."""
    ours = list(dict.fromkeys(e.family for e in entries if e.family.ours))
    lines = []
    for problem in _problems(entries):
        measure = next(m for m in time_measures() if m.title == f"{problem.target:g}")
        theirs = [e for e in _of(entries, problem) if not e.family.ours]
        if not theirs:
            continue
        best, reference = _best(theirs, measure)
        cells = [measure.of(e) for family in ours for e in _of(entries, problem) if e.family is family]
        shares = [_share(s.median, reference.median) + _count(s) for s in cells]
        lines.append(row([problem.title, f"{best.family.name}: {_cell(reference, measure.text)}", *shares]))
    if not lines:
        return []
    title = "## Time to the target, against the best optimizer from its own best start"
    return ["", title, "", *header(["problem", "best optimizer", *(f.name for f in ours)]), *lines]


def in_steps(entries: Sequence[Entry]) -> list[str]:
    """To the first threshold: how many sweeps, and how many steps of Adam would have taken that long."""
    lines, threshold = [], THRESHOLDS[0]
    for problem in _problems(entries):
        ends = [r.history[-1] for e in _of(entries, problem) if e.candidate.method == "adam" for r in e.runs if r.ok]
        if not ends:
            continue
        adam = median(seconds / max(step, 1) for seconds, step, *_ in ends)
        for e in (e for e in _of(entries, problem) if e.family.ours):
            sweeps = spread([steps_to(run, threshold) for run in e.runs])
            of_adam = spread([seconds_to(run, threshold) / adam for run in e.runs])
            lines.append(row([problem.title, e.family.name, _cell(sweeps, count_text), _cell(of_adam, count_text)]))
    if not lines:
        return []
    title = f"## Sweeps to training cross-entropy {threshold:g}, and the steps of Adam that take as long"
    return ["", title, "", *header(["problem", "method", "sweeps", "Adam steps"]), *lines]


def _share(ours: float, theirs: float) -> str:
    if math.isinf(ours):
        return "–"
    return "gets there alone" if math.isinf(theirs) else f"{ours / theirs:.2g} ×"


def held_out(entries: Sequence[Entry]) -> list[str]:
    """A table for every problem: a row a family, a column a time."""
    lines = []
    for problem in _problems(entries):
        measures = accuracy_measures(problem)
        lines += ["", f"## {problem.title}: held-out accuracy after", ""]
        lines += header(["method", *(m.title for m in measures), "training cross-entropy at the end"])
        for entry in _of(entries, problem):
            ends = spread([run.column("cross_entropy")[-1] if run.ok else math.inf for run in entry.runs])
            cells = [f"{m.of(entry).median:.2%} [{m.of(entry).low:.2%}, {m.of(entry).high:.2%}]" for m in measures]
            lines.append(row([entry.family.name, *cells, f"{ends.median:.1e}"]))
    return lines


def settings(entries: Sequence[Entry]) -> list[str]:
    """What every family chose on every problem, and which of it a wider grid might better."""
    lines = ["", "## What each chose", "", *header(["problem", "method", "chosen"])]
    lines += [row([e.problem.title, e.family.name, e.candidate.title]) for e in entries]
    ends = [
        f"{e.problem.title}, {e.family.name} {e.candidate.lr:g}"
        for e in entries
        if at_an_edge(e.family, e.problem, e.candidate)
    ]
    if ends:
        lines += ["", f"Learning rates chosen at the edge of their grid (of three or more): {'; '.join(ends)}."]
    return lines


def failures(entries: Sequence[Entry]) -> list[str]:
    """Every run of a ladder that did not reach the target, and every run that broke."""
    rows = []
    for e in entries:
        target = e.problem.target
        missed = [r for r in e.runs if not r.ok or (target is not None and math.isinf(seconds_to(r, target)))]
        if missed:
            cells = [
                f"{r.specification['seed']}: {lowest(r):.2g}{'' if r.ok else f' ({r.outcome.ended})'}" for r in missed
            ]
            rows.append(row([e.problem.title, e.family.name, f"{len(missed)} of {len(e.runs)}", ", ".join(cells)]))
    if not rows:
        return ["", "## Every failure", "", "None."]
    return ["", "## Every failure", "", *header(["problem", "method", "runs", "seed: lowest cross-entropy"]), *rows]


def verdict(entries: Sequence[Entry], measures: Callable[[Problem], Sequence[Measure]]) -> list[str]:
    """Where the best of layer separation is behind the best optimizer, in medians or in how often it gets there."""
    lost, compared = [], 0
    for problem in _problems(entries):
        for measure in measures(problem):
            groups = [[e for e in _of(entries, problem) if e.family.ours is ours] for ours in (True, False)]
            if not all(groups):
                continue
            ours, theirs = (_best(group, measure) for group in groups)
            if not (ours[1].reached or theirs[1].reached):
                continue
            compared += 1
            if _score(theirs[1], measure) < _score(ours[1], measure):
                lost.append(_sentence(problem, measure, ours, theirs))
    lines = ["", "## Where layer separation loses", ""]
    if not lost:
        return [*lines, f"In none of {compared} comparisons of its best row with the best of the optimizers' rows."]
    return [
        *lines,
        f"In {len(lost)} of {compared} comparisons of its best row with the best of the optimizers' rows:",
        "",
        *lost,
    ]


def colophon(runs: Sequence[Run]) -> list[str]:
    """Where the runs were made, and how busy it was there."""
    machines = sorted({machine.sentence(run.machine) for run in runs})
    loads = [run.machine["load"] for run in runs if "load" in run.machine]
    busy = f" Load average while they ran: {min(loads):.1f} to {max(loads):.1f}." if loads else ""
    return ["", f"Machine: {'; '.join(machines)}.{busy}", f"Drawn by `lysep bench` on {time.strftime('%Y-%m-%d')}.", ""]


def _best(group: Sequence[Entry], measure: Measure) -> tuple[Entry, Spread]:
    return min(((entry, measure.of(entry)) for entry in group), key=lambda pair: _score(pair[1], measure))


def _score(s: Spread, measure: Measure) -> tuple[float, float]:
    """Less is better: first how many runs did not get there, then the median."""
    return (s.runs - s.reached, s.median if measure.smaller_is_better else -s.median)


def _sentence(problem: Problem, measure: Measure, ours: tuple[Entry, Spread], theirs: tuple[Entry, Spread]) -> str:
    words = [f"{entry.family.name} {_cell(s, measure.text)}" for entry, s in (theirs, ours)]
    what = f"to {measure.title}" if measure.smaller_is_better else f"after {measure.title}"
    return f"- {problem.title}, {what}: {words[0]}, against {words[1]}."


def _cell(s: Spread, text: Callable[[float], str]) -> str:
    return f"{text(s.median)} [{text(s.low)}, {text(s.high)}]{_count(s)}" if s.reached else f"– (0/{s.runs})"


def _count(s: Spread) -> str:
    return "" if s.reached == s.runs else f" ({s.reached}/{s.runs})"


def seconds_text(seconds: float) -> str:
    return "–" if math.isinf(seconds) else f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def count_text(count: float) -> str:
    return "–" if math.isinf(count) else f"{count:.0f}"


def header(cells: Sequence[str]) -> list[str]:
    return [row(cells), "|" + "---|" * len(cells)]


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _problems(entries: Sequence[Entry]) -> list[Problem]:
    return list(dict.fromkeys(e.problem for e in entries))


def _of(entries: Sequence[Entry], problem: Problem) -> list[Entry]:
    return [e for e in entries if e.problem is problem]
