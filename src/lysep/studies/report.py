"""One page, and its parts as Markdown, PNG and SVG: drawn from a folder of runs and from nothing else."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from lysep.studies import figures, page
from lysep.studies.paper import ALL_TABLES, FIGURES, METHODS, SEEDS, SWEEPS, Cell, Table
from lysep.studies.runs import Run, Store
from lysep.studies.tables import Row, apart, markdown, rows
from lysep.studies.tuning import Trials, trials

CAPTIONS = {
    "figure1": "Figure 1: the test samples of the circle problem with their labels. The line is the true boundary.",
    "figure2": "Figure 2: training cross-entropy and accuracy against iterations; mean over seeds, the band is one "
    "standard deviation. Both axes of the loss are logarithmic. An iteration of L-BFGS is one of its own.",
    "figure3": "Figure 3: test samples of the circle problem as classified by the best seed of each method (the one of "
    "lowest training loss). Black squares are misclassified; the line is the true boundary.",
    "figure4": "Figure 4: the solution of the Allen-Cahn equation, and the test samples as classified by the best seed "
    "of each method on the (20,20) network. Black squares are misclassified; the line is the true interface.",
}


def write_report(store: Store, out: Path) -> Path:
    """Draw everything that the runs allow, and say what they do not. Returns the page."""
    runs = list(store)
    if not runs:
        raise ValueError(f"{store.folder} holds no runs. Make some: lysep reproduce table1 --quick.")
    out.mkdir(parents=True, exist_ok=True)
    tables = {table: rows(table, runs) for table in ALL_TABLES}
    shown = {table: found for table, found in tables.items() if not table.stand_in or _rows(found)}
    sections = []
    for table, found in shown.items():
        tried = trials(table, runs)
        said = notes(table, found, tried)
        sections.append(page.table(table, found, said, tried))
        listed = "".join(f"- {note}\n" for note in said)
        (out / f"{table.slug}.md").write_text(f"# {table.title}\n\n{markdown(table, found)}\n{listed}")
    by_cell = {row.cell: row for found in tables.values() for row in _rows(found)}
    sections += [_figure(name, by_cell, out) for name in FIGURES]
    sections += [page.failures(runs), page.machines(machines(runs))]
    target = out / "index.html"
    target.write_text(page.whole([_glance(table, found) for table, found in shown.items()], sections))
    return target


def _figure(name: str, by_cell: dict[Cell, Row], out: Path) -> str:
    figure = figures.draw(name, by_cell)
    if figure is None:
        return page.missing_figure(name, CAPTIONS[name], f"Not run. lysep reproduce {name} makes what it needs.")
    for kind in ("png", "svg"):
        figure.savefig(out / f"{name}.{kind}", dpi=160)
    return page.figure(name, CAPTIONS[name], (out / f"{name}.svg").read_bytes())


def _rows(found: Sequence[Row | Cell]) -> list[Row]:
    return [row for row in found if isinstance(row, Row)]


def _glance(table: Table, found: Sequence[Row | Cell]) -> tuple[str, str, str]:
    done = _rows(found)
    seeds = sorted({row.seeds for row in done})
    each = f", {_range(seeds)} seeds each" if done else ""
    failed = sum(len(row.failed) for row in done)
    return table.slug, table.title, f"{len(done)} of {len(found)} rows run{each}; failed runs: {failed}"


def _range(values: Sequence[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def notes(table: Table, found: Sequence[Row | Cell], tried: Sequence[Trials]) -> list[str]:
    """What a reader must know of the rows: what they can be compared with, what was not reached, what was not run."""
    done, missing = _rows(found), _missing(found)
    return [
        _COMPARED["stand-in" if table.stand_in else "full" if table.batch_size is None else "batches"],
        *(_beside_the_paper(table, done) if done and not table.stand_in else []),
        *_edges(tried),
        *([f"Not run: {'; '.join(missing)}."] if missing else []),
        *_fewer("seeds", SEEDS, [row.seeds + len(row.failed) for row in done]),
        *_fewer("iterations", SWEEPS, [int(row.specification["sweeps"]) for row in done]),
        *_ended_early(done),
        *table.remarks,
    ]


def _beside_the_paper(table: Table, done: Sequence[Row]) -> list[str]:
    worse, better = apart(table, done, "paper", better=False), apart(table, done, "gd", better=True)
    said = ["Every LySep row that was run is within two of the paper's standard deviations, or better."]
    if worse:
        said = [f"Worse than the paper's LySep row by more than two of its standard deviations: {'; '.join(worse)}."]
    if better:
        said.append(
            "Gradient descent, which chooses its start here as well as its learning rate, is better than the paper's "
            f"CE row by more than two of its standard deviations: {'; '.join(better)}."
        )
    return said


def _edges(tried: Sequence[Trials]) -> list[str]:
    """The choices that a wider grid might better."""
    ends = [f"({t.network[0]},{t.network[1]}) {METHODS[t.method]} {t.lowest[1]:g}" for t in tried if t.at_an_edge]
    return [f"Learning rates chosen at the edge of their grid: {'; '.join(ends)}."] if ends else []


def _fewer(what: str, wanted: int, had: Sequence[int]) -> list[str]:
    fewer = sorted(Counter(number for number in had if number < wanted).items())
    rest = ", ".join(f"{number:,} in {count} row(s)" for number, count in fewer)
    return [f"Fewer {what} than the paper's {wanted:,}: {rest}."] if fewer else []


def _ended_early(done: Sequence[Row]) -> list[str]:
    early = Counter(
        METHODS[row.cell.method] for row in done for run in row.runs if run.outcome.sweeps < run.specification["sweeps"]
    )
    return [
        f"{method}: {count} run(s) ended early, because no step lowered the loss any more in floating point."
        for method, count in early.items()
    ]


_COMPARED = {
    "full": "Training figures are those of all training samples after the last iteration, as the paper's are. A "
    "difference is in the paper's standard deviations: below zero is better for the cross-entropy, above zero for the "
    "accuracy. Test accuracies are ours alone; the paper prints none.",
    "batches": "The paper records its training figures throughout the iterations, on a training subset of 1,500 images "
    "that is replaced every 200 of them, and does not say on which images. Layer separation has auxiliary variables "
    "for the subset alone, and scoring all 60,000 images would cost many times the iteration itself: most probably the "
    "printed figures are those of the subset in hand, so it is the last batch that they are compared with. All "
    "training images and the test images are shown beside it.",
    "stand-in": "These are scikit-learn's 1,797 digits of 8 × 8 pixels in place of MNIST: a check that everything "
    "works, nothing to compare the paper's figures with.",
}


def _missing(found: Sequence[Row | Cell]) -> list[str]:
    """What was not run, a network and time slice at a time."""
    methods: dict[str, list[str]] = defaultdict(list)
    missing: dict[str, list[str]] = defaultdict(list)
    for row in found:
        cell = row.cell if isinstance(row, Row) else row
        at = "" if cell.time is None else f" at t = {cell.time:g}"
        place = f"({cell.network[0]},{cell.network[1]}){at}"
        methods[place].append(cell.method)
        if isinstance(row, Cell):
            missing[place].append(cell.method)
    return [
        place if names == methods[place] else f"{place}: {' and '.join(METHODS[name] for name in names)}"
        for place, names in missing.items()
    ]


def machines(runs: Iterable[Run]) -> list[tuple[str, int]]:
    """Every machine with its versions, and how many runs it did."""
    return Counter(json.dumps(run.machine) for run in runs).most_common()
