"""The paper's figures, drawn from runs. Needs matplotlib: pip install 'lysep[plot]'."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import torch

from lysep.problems.pictures import draw_circle, draw_interface, draw_samples, draw_solution
from lysep.studies.execute import ITERATIONS_PER_STEP, load
from lysep.studies.paper import DATA_SEED, METHODS, TABLES, Cell, cells_of
from lysep.studies.runs import Run
from lysep.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"paper": "#0072b2", "gd": "#d55e00", "adam": "#009e73", "lbfgs": "#cc79a7"}  # Okabe and Ito's

Rows = Mapping[Cell, Row]


def draw(name: str, rows: Rows) -> Figure | None:
    """A figure by its name; None where the runs that it needs are missing."""
    return _FIGURES[name](name, rows)


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'lysep[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")  # not pyplot, which keeps every figure alive


def _rows_of(name: str, rows: Rows) -> list[Row]:
    return [rows[cell] for cell in cells_of(name) if cell in rows and rows[cell].runs]


def _labels(name: str, rows: Rows) -> Figure:
    """Figure 1: labels of the test samples, and the true boundary."""
    figure = new_figure(4.2, 4.2)
    data, axes = load({"problem": "circle", "data_seed": DATA_SEED}), figure.subplots()
    draw_samples(axes, data.X_test, data.y_test)
    draw_circle(axes)
    return figure


def _curves(name: str, rows: Rows) -> Figure | None:
    """Figure 2: loss and accuracy against iterations, mean and one standard deviation."""
    found = _rows_of(name, rows)
    networks = list(dict.fromkeys(row.cell.network for row in found))
    if not networks:
        return None
    figure = new_figure(9.5, 3.4 * len(networks))
    grid = figure.subplots(len(networks), 2, squeeze=False)
    for (loss, accuracy), network in zip(grid, networks, strict=True):
        for row in (row for row in found if row.cell.network == network):
            label = f"{METHODS[row.cell.method]} ({_count(row)})"
            _band(loss, row, "cross_entropy", label)
            _band(accuracy, row, "accuracy", label)
        loss.set(xscale="log", yscale="log", xlabel="iteration", ylabel="training cross-entropy")
        accuracy.set(xscale="log", xlabel="iteration", ylabel="training accuracy")
        accuracy.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        for axes in (loss, accuracy):
            axes.set_title(f"L = {network[0]}, M = {network[1]}", fontsize=10)
            axes.grid(alpha=0.25, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
        loss.legend(frameon=False, fontsize=8)
    return figure


def _count(row: Row) -> str:
    return f"{row.seeds} seeds" + (f", {len(row.failed)} failed" if row.failed else "")


def _band(axes: Axes, row: Row, column: str, label: str) -> None:
    sweeps, means, deviations = band(row.runs, column)
    lower = [m - d for m, d in zip(means, deviations, strict=True)]
    upper = [m + d for m, d in zip(means, deviations, strict=True)]
    if column == "accuracy":
        upper = [min(high, 1.0) for high in upper]
    else:  # on a logarithmic axis a band cannot go below zero
        lower = [max(low, 0.1 * m) for low, m in zip(lower, means, strict=True)]
    colour = COLOURS[row.cell.method]
    axes.fill_between(sweeps, lower, upper, color=colour, alpha=0.18, linewidth=0)
    axes.plot(sweeps, means, color=colour, linewidth=1.6, label=label)


def band(runs: Sequence[Run], column: str) -> tuple[list[float], list[float], list[float]]:
    """Iterations, means and standard deviations; a run that ended early counts with the value that it ended at."""
    curves = [curve(run, column) for run in runs]
    iterations = sorted({iteration for at, _ in curves for iteration in at})
    columns = [[values[max(0, bisect_right(at, i) - 1)] for i in iterations] for at, values in curves]
    together = list(zip(*columns, strict=True))
    return iterations, [mean(v) for v in together], [stdev(v) if len(v) > 1 else 0.0 for v in together]


def curve(run: Run, column: str) -> tuple[list[float], list[float]]:
    """Iterations done, and the value then. Other methods than layer separation record a step's value before it."""
    at, values = run.column("sweep"), run.column(column)
    if run.specification["method"] != "paper":
        step = ITERATIONS_PER_STEP.get(run.specification["method"], 1)
        data = "train" if run.specification["batch_size"] is None else "last_batch"
        at = [*(iteration - step for iteration in at), float(run.outcome.sweeps)]
        values = [*values, run.outcome.scores[data][column]]
    after_start = bisect_right(at, 0.0)  # which a logarithmic axis does not have
    return at[after_start:], values[after_start:]


def _circle_classification(name: str, rows: Rows) -> Figure | None:
    """Figure 3: what the best seeds make of the test samples."""
    found = _rows_of(name, rows)
    if not found:
        return None
    networks = list(dict.fromkeys(row.cell.network for row in found))
    methods = list(dict.fromkeys(row.cell.method for row in found))
    figure = new_figure(4.0 * len(methods), 4.2 * len(networks))
    grid = _blank(figure, len(networks), len(methods))
    for row in found:
        axes = grid[networks.index(row.cell.network), methods.index(row.cell.method)]
        _classified(axes, row)
        draw_circle(axes)
    return figure


def _interface_classification(name: str, rows: Rows) -> Figure | None:
    """Figure 4: the solution, and below it what the best seeds make of the test samples."""
    found = _rows_of(name, rows)
    if not found:
        return None
    times = [time for time in TABLES["table2"].times if time is not None]
    methods = list(dict.fromkeys(row.cell.method for row in found))
    figure = new_figure(3.1 * len(times), 3.3 * (1 + len(methods)))
    grid = _blank(figure, 1 + len(methods), len(times))
    for axes, time in zip(grid[0], times, strict=True):
        axes.set_axis_on()
        draw_solution(axes, time)
    for row in found:
        assert row.cell.time is not None
        axes = grid[1 + methods.index(row.cell.method), times.index(row.cell.time)]
        _classified(axes, row)
        draw_interface(axes, row.cell.time)
    return figure


def _blank(figure: Figure, high: int, wide: int) -> Any:
    """Axes that show nothing, and stay so where a run is missing."""
    grid = figure.subplots(high, wide, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    return grid


def _classified(axes: Axes, row: Row) -> None:
    run = row.best()
    assert run is not None  # `_rows_of` leaves out rows without runs
    data = load(run.specification)
    predicted = torch.tensor([int(digit) for digit in run.outcome.predictions])
    wrong = predicted != data.y_test
    axes.set_axis_on()
    draw_samples(axes, data.X_test, predicted, wrong)
    for points in axes.collections:
        points.set_rasterized(True)  # a thousand shapes each would make the page heavy
    first, second = row.cell.network
    at = "" if row.cell.time is None else f", t = {row.cell.time:g}"
    axes.set_title(
        f"({first},{second}){at}: {METHODS[row.cell.method]}\n"
        f"seed {run.specification['seed']}, {int(wrong.sum())} of {len(wrong)} wrong",
        fontsize=9,
    )


_FIGURES: dict[str, Callable[[str, Rows], Figure | None]] = {
    "figure1": _labels,
    "figure2": _curves,
    "figure3": _circle_classification,
    "figure4": _interface_classification,
}
