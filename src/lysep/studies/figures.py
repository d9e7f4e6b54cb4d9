"""The paper's figures, drawn from runs. Needs matplotlib: pip install 'lysep[plot]'."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from lysep.problems.allen_cahn import solution
from lysep.problems.circle import RADIUS
from lysep.studies.execute import load
from lysep.studies.paper import DATA_SEED, FIGURES, METHODS, TABLES, Cell
from lysep.studies.runs import Run
from lysep.studies.tables import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"paper": "#0072b2", "gd": "#d55e00", "adam": "#009e73", "lbfgs": "#cc79a7"}  # Okabe and Ito's
_OUTSIDE, _INSIDE = "#e69f00", "#56b4e9"  # of the two classes

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
    part = FIGURES[name]
    assert part is not None
    cells = [c for c in TABLES[part.table].cells if c.network in part.networks and c.method in part.methods]
    return [rows[cell] for cell in cells if cell in rows and rows[cell].runs]


def _labels(name: str, rows: Rows) -> Figure:
    """Figure 1: labels of the test samples, and the true boundary."""
    figure = new_figure(4.2, 4.2)
    data = load({"problem": "circle", "data_seed": DATA_SEED})
    axes = figure.subplots()
    _scatter(axes, data.X_test.numpy(), data.y_test.numpy(), None, 9.0)
    _circle(axes)
    axes.set_title("test samples and their labels", fontsize=10)
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
    if column == "cross_entropy":  # on a logarithmic axis a band cannot go below zero
        lower = [max(low, 0.1 * m) for low, m in zip(lower, means, strict=True)]
    upper = [m + d for m, d in zip(means, deviations, strict=True)]
    colour = COLOURS[row.cell.method]
    axes.fill_between(sweeps, lower, upper, color=colour, alpha=0.18, linewidth=0)
    axes.plot(sweeps, means, color=colour, linewidth=1.6, label=label)


def band(runs: Sequence[Run], column: str) -> tuple[list[float], list[float], list[float]]:
    """Sweeps, means and standard deviations; a run that ended early counts with the value that it ended at."""
    sweeps = sorted({sweep for run in runs for sweep in run.column("sweep")})
    columns = []
    for run in runs:
        at, values = run.column("sweep"), run.column(column)
        columns.append([values[max(0, bisect_right(at, sweep) - 1)] for sweep in sweeps])
    together = list(zip(*columns, strict=True))
    return sweeps, [mean(v) for v in together], [stdev(v) if len(v) > 1 else 0.0 for v in together]


def _circle_classification(name: str, rows: Rows) -> Figure | None:
    """Figure 3: what the best seeds make of the test samples."""
    found = _rows_of(name, rows)
    if not found:
        return None
    networks = list(dict.fromkeys(row.cell.network for row in found))
    methods = list(dict.fromkeys(row.cell.method for row in found))
    figure = new_figure(4.0 * len(methods), 4.2 * len(networks))
    grid = figure.subplots(len(networks), len(methods), squeeze=False)
    _blank(grid)
    for row in found:
        axes = grid[networks.index(row.cell.network), methods.index(row.cell.method)]
        _classified(axes, row, 9.0)
        _circle(axes)
    return figure


def _interface_classification(name: str, rows: Rows) -> Figure | None:
    """Figure 4: the solution, and below it what the best seeds make of the test samples."""
    found = _rows_of(name, rows)
    if not found:
        return None
    times = [time for time in TABLES["table2"].times if time is not None]
    methods = list(dict.fromkeys(row.cell.method for row in found))
    figure = new_figure(3.1 * len(times), 3.3 * (1 + len(methods)))
    grid = figure.subplots(1 + len(methods), len(times), squeeze=False)
    _blank(grid)
    for column, time in enumerate(times):
        _solution(grid[0, column], time)
    for row in found:
        assert row.cell.time is not None
        axes = grid[1 + methods.index(row.cell.method), times.index(row.cell.time)]
        _classified(axes, row, 6.0)
        _contour(axes, row.cell.time)
    return figure


def _blank(grid: Any) -> None:
    """Nothing where a run is missing; `_plain` puts the frame back where one is not."""
    for axes in grid.flat:
        axes.set_axis_off()


def _classified(axes: Axes, row: Row, size: float) -> None:
    run = row.best()
    assert run is not None  # `_rows_of` leaves out rows without runs
    data = load(run.specification)
    predicted = np.array([int(digit) for digit in run.outcome.predictions])
    wrong = predicted != data.y_test.numpy()
    _scatter(axes, data.X_test.numpy(), predicted, wrong, size)
    first, second = row.cell.network
    at = "" if row.cell.time is None else f", t = {row.cell.time:g}"
    axes.set_title(
        f"({first},{second}){at}: {METHODS[row.cell.method]}\n"
        f"seed {run.specification['seed']}, {int(wrong.sum())} of {len(wrong)} wrong",
        fontsize=9,
    )


def _scatter(axes: Axes, X: Any, classes: Any, wrong: Any, size: float) -> None:
    for value, colour in ((0, _OUTSIDE), (1, _INSIDE)):
        chosen = classes == value
        axes.scatter(X[chosen, 0], X[chosen, 1], s=size, color=colour, linewidths=0, rasterized=True)
    if wrong is not None:
        axes.scatter(X[wrong, 0], X[wrong, 1], s=1.6 * size, color="black", marker="s", linewidths=0, rasterized=True)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.set_axis_on()
    axes.set(aspect="equal", xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color="0.6", linewidth=0.6)


def _circle(axes: Axes) -> None:
    angles = np.linspace(0.0, 2.0 * math.pi, 200)
    axes.plot(RADIUS * np.cos(angles), RADIUS * np.sin(angles), color="0.15", linewidth=1.0)


def _field(time: float) -> tuple[Any, Any]:
    axis = np.linspace(-0.5, 0.5, 201)
    x, y = np.meshgrid(axis, axis)
    return axis, solution(time)(x.ravel(), y.ravel()).reshape(x.shape)


def _contour(axes: Axes, time: float) -> None:
    axis, u = _field(time)
    axes.contour(axis, axis, u, levels=[0.0], colors="0.15", linewidths=1.0)


def _solution(axes: Axes, time: float) -> None:
    axis, u = _field(time)
    axes.imshow(u, extent=(-0.5, 0.5, -0.5, 0.5), origin="lower", cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    axes.contour(axis, axis, u, levels=[0.0], colors="0.15", linewidths=1.0)
    axes.set_title(f"u at t = {time:g}", fontsize=9)
    _plain(axes)


_FIGURES: dict[str, Callable[[str, Rows], Figure | None]] = {
    "figure1": _labels,
    "figure2": _curves,
    "figure3": _circle_classification,
    "figure4": _interface_classification,
}
