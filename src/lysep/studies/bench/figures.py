"""The pictures of the tables, drawn from the same runs. Needs matplotlib: pip install 'lysep[plot]'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lysep.studies.bench.conduct import Entry
from lysep.studies.bench.problems import THRESHOLDS
from lysep.studies.bench.summary import accuracy_at, seconds_to, spread
from lysep.studies.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_READINGS = 60  # of an accuracy, along the clock


def ladder(entries: Sequence[Entry]) -> Figure:
    """Median seconds to every threshold, problem by problem; an open mark on top: less than half of the seeds did."""
    figure = new_figure(4.2 * len(THRESHOLDS), 4.2)
    problems = list(dict.fromkeys(e.problem for e in entries))
    families = list(dict.fromkeys(e.family for e in entries))
    for axes, threshold in zip(figure.subplots(1, len(THRESHOLDS), sharey=True), THRESHOLDS, strict=True):
        top = 2.0 * max(p.budget for p in problems)
        for place, family in enumerate(families):
            mine = [e for e in entries if e.family is family]
            spreads = [spread([seconds_to(run, threshold) for run in e.runs]) for e in mine]
            x = [problems.index(e.problem) + 0.06 * (place - len(families) / 2) for e in mine]
            reached = [i for i, s in enumerate(spreads) if math.isfinite(s.median)]
            style = {"color": f"C{place}", "marker": _MARKS[place % len(_MARKS)]}
            bars = [
                [spreads[i].median - spreads[i].low for i in reached],
                [min(spreads[i].high, top) - spreads[i].median for i in reached],
            ]
            medians = [spreads[i].median for i in reached]
            line = "-" if family.ours else "--"
            axes.errorbar([x[i] for i in reached], medians, bars, linestyle=line, label=family.name, capsize=2, **style)
            missed = [x[i] for i in range(len(mine)) if i not in reached]
            axes.plot(missed, [top] * len(missed), linestyle="", fillstyle="none", **style)
        axes.set(yscale="log", title=f"to training cross-entropy {threshold:g}", xlabel="")
        axes.set_xticks(range(len(problems)), [p.title for p in problems], rotation=30, ha="right")
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("seconds, median and quartiles")
    _legend(figure)
    return figure


def held_out(entries: Sequence[Entry]) -> Figure:
    """Held-out accuracy against seconds: medians, with the quartiles as a band."""
    problems = list(dict.fromkeys(e.problem for e in entries))
    figure = new_figure(4.2 * len(problems), 3.8)
    all_axes = figure.subplots(1, len(problems), squeeze=False)[0]
    for axes, problem in zip(all_axes, problems, strict=True):
        _curves(axes, [e for e in entries if e.problem is problem])
        axes.set(xscale="log", title=problem.title, xlabel="seconds")
        axes.grid(alpha=0.25)
    all_axes[0].set_ylabel("held-out accuracy")
    _legend(figure)
    return figure


def _legend(figure: Figure) -> None:
    """One for all panels, below them: each family has its colour everywhere."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=8, frameon=False)


def _curves(axes: Axes, entries: Sequence[Entry]) -> None:
    finals = []
    for place, entry in enumerate(entries):
        budget = entry.problem.budget
        times = [budget * 10 ** (-2 * (1 - i / (_READINGS - 1))) for i in range(_READINGS)]
        spreads = [spread([accuracy_at(run, t) for run in entry.runs]) for t in times]
        line = "-" if entry.family.ours else "--"
        axes.plot(times, [s.median for s in spreads], line, color=f"C{place}", label=entry.family.name)
        axes.fill_between(times, [s.low for s in spreads], [s.high for s in spreads], color=f"C{place}", alpha=0.15)
        finals.append(spreads[-1].median)
    best = max(finals)
    axes.set_ylim(max(0.0, best - 4.0 * max(0.01, 1.0 - best) - 0.05), min(1.0, best + 0.02))
