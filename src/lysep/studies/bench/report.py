"""`lysep bench`: what is compared, said beforehand, carried out, and written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lysep import machine
from lysep.studies.bench import cost_report, figures, tables
from lysep.studies.bench.conduct import Comparison, Entry, Runner, Say, compare, shortened
from lysep.studies.bench.own import on_own_data
from lysep.studies.bench.problems import HELD_OUT, LADDER, Problem
from lysep.studies.bench.training import SCORED
from lysep.studies.bench.tuning import (
    ADAM,
    FAST_BEST,
    FAST_GIVEN,
    LBFGS,
    MUON,
    PAPER_BEST,
    PAPER_GIVEN,
    SGD,
)
from lysep.studies.runs import Store
from lysep.text import duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPARISONS = {
    "ladder": Comparison(LADDER, (SGD, ADAM, LBFGS, MUON, PAPER_GIVEN, PAPER_BEST, FAST_GIVEN, FAST_BEST)),
    "held-out": Comparison(HELD_OUT, (ADAM, LBFGS, FAST_GIVEN, FAST_BEST)),
}
NAMES = (*COMPARISONS, "cost")

_HOW = [
    "One clock for all, which stands still while the one scorer scores the model: seconds of the processor, on which",
    "each run has one thread. Medians over seeds, with quartiles in brackets; a run that does not get there counts as",
    "infinite, and (7/10) says how many did. What an optimizer may choose (learning rate; PyTorch's, Xavier's or the",
    "measured start; batches) is chosen on seeds of its own: every candidate on one seed for a quarter of the budget,",
    "the best two on two more. Layer separation has no learning rate: it gets PyTorch's start, and in a row of its own",
    "the best one; where there are batches to choose, both rows choose them. All that is chosen in the same way.",
    f"Training cross-entropy is that of the first {SCORED:,} training samples, where there are more.",
]


@dataclass(frozen=True)
class Options:
    out: Path
    runs: Path
    data: Path | None = None
    only: Sequence[str] = ()
    seeds: int | None = None
    budget: float | None = None
    quick: bool = False
    jobs: int = 1


def bench(names: Sequence[str], options: Options, say: Say) -> list[Path]:
    """Carry out the comparisons and write a table and a picture of each. Returns the files written."""
    comparisons = {name: _adapted(name, options) for name in names if name in COMPARISONS}
    costs = {name: comparison.cost() for name, comparison in comparisons.items()}
    for name, (runs, seconds) in costs.items():
        say(f"{name}: at most {runs:,} runs and {duration(seconds / options.jobs)} of training")
    if "cost" in names:
        say("cost: about 10 min" if not options.quick else "cost: about a minute")
    options.out.mkdir(parents=True, exist_ok=True)
    store, written = Store(options.runs), []
    for name, comparison in comparisons.items():
        with machine.one_thread(), Runner(store, options.jobs, costs[name], say) as runner:
            entries = compare(comparison, runner)
        lines, picture = _document(name, entries)
        written += _write(options.out, name, lines, picture)
    if "cost" in names:
        with machine.one_thread():
            lines, picture = cost_report.measure(store, say, options.quick)
        written += _write(options.out, "cost", lines, picture)
    return written


def _adapted(name: str, options: Options) -> Comparison:
    comparison = COMPARISONS[name]
    problems = comparison.problems if options.data is None else on_own_data(options.data, name)
    kept = [p for p in problems if not options.only or any(text in p.title for text in options.only)]
    if not kept:
        titles = ", ".join(p.title for p in problems)
        raise ValueError(f"--only {' '.join(options.only)} leaves nothing of {name}, which has {titles}.")
    comparison = replace(comparison, problems=[_resized(p, options) for p in kept])
    return shortened(comparison) if options.quick else comparison


def _resized(problem: Problem, options: Options) -> Problem:
    seeds = problem.seeds if options.seeds is None else options.seeds
    return replace(problem, seeds=seeds, budget=problem.budget if options.budget is None else options.budget)


def _document(name: str, entries: Sequence[Entry]) -> tuple[list[str], Figure]:
    budgets = ", ".join(f"{p.title} {p.budget:g} s" for p in dict.fromkeys(e.problem for e in entries))
    if name == "ladder":
        title, picture = "# Depth ladder: seconds to a training cross-entropy", figures.ladder(entries)
        body = [*tables.against_the_best(entries), *tables.in_steps(entries), *tables.ladder(entries)]
        verdict = tables.verdict(entries, lambda _: tables.time_measures())
    else:
        title, picture = "# Held-out accuracy against seconds", figures.held_out(entries)
        body, verdict = tables.held_out(entries), tables.verdict(entries, tables.accuracy_measures)
    lines = [title, "", *_HOW, f"Budgets: {budgets}.", "", f"![{title[2:]}]({_picture_name(name)})", *verdict, *body]
    every = [run for entry in entries for run in entry.runs]
    return [*lines, *tables.settings(entries), *tables.failures(entries), *tables.colophon(every)], picture


def _write(out: Path, name: str, lines: Sequence[str], picture: Figure) -> list[Path]:
    document, image = out / f"{name.replace('-', '_')}.md", out / _picture_name(name)
    document.write_text("\n".join(lines))
    picture.savefig(image, dpi=150)
    return [document, image]


def _picture_name(name: str) -> str:
    return f"{name.replace('-', '_')}.png"
