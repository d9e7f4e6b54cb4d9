"""The cost of a sweep as tables and a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import torch

from lysep import machine
from lysep.studies.bench import counts, where
from lysep.studies.bench.cost import (
    AT_ONCE,
    AXES,
    METHODS,
    NETWORK,
    ROUNDS,
    SAMPLES,
    Axis,
    Point,
    exponent,
    grow,
    in_turn,
)
from lysep.studies.bench.tables import colophon, header, row
from lysep.studies.figures import new_figure
from lysep.studies.runs import Outcome, Run, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {"adam": "Adam step"}


def measure(store: Store, say: Callable[[str], None], quick: bool) -> tuple[list[str], Figure]:
    """Everything about cost: the lines of its document, and its picture."""
    axes = [replace(axis, sizes=axis.sizes[:2]) for axis in AXES] if quick else list(AXES)
    rounds = 2 if quick else ROUNDS
    lines = [
        "# What a sweep costs",
        "",
        f"One thread. A sweep of each method and a step of Adam on the circle network {NETWORK}, {SAMPLES:,} samples,",
        f"full batch: medians of {rounds} rounds in which they take turns. All that `lysep.fit` does is counted.",
        "",
        *_ratios(store, rounds, say),
        "",
        *_needs(store, rounds),
        "",
        *_where_the_time_goes(store),
    ]
    runs = grow([point for axis in axes for point in axis.points()], store, say)
    for axis in axes:
        lines += ["", *_growth(axis, runs)]
    lines += [
        "",
        f"Beyond {AT_ONCE:,} samples a pass goes through the data in batches of so many. Memory is the peak above what",
        "the process holds with data and network. Exponents are fitted to a whole row, by least squares of logarithms;",
        "small sizes cost calls rather than arithmetic, which lowers them: the last column is of the two largest.",
        *colophon(list(runs.values())),
    ]
    return lines, _picture(axes, runs)


def _rounds_of(dtype: torch.dtype, rounds: int, store: Store) -> list[list[float]]:
    """Measured once ever, like every run."""
    name = str(dtype).removeprefix("torch.")
    specification = {
        "problem": "turns",
        "network": list(NETWORK),
        "method": list(METHODS),
        "dtype": name,
        "rounds": rounds,
    }
    run = store.get(specification)
    if run is None:
        table = in_turn(dtype, rounds=rounds)
        run = Run(
            specification, machine.describe(), METHODS, table, Outcome("ok", "measured", rounds, sum(map(sum, table)))
        )
        store.save(run)
    return [list(seconds) for seconds in run.history]


def _ratios(store: Store, rounds: int, say: Callable[[str], None]) -> list[str]:
    theirs = METHODS.index("adam")
    lines = header(["dtype", *(f"{_title(m)}, ms" for m in METHODS), *(f"{m} / Adam" for m in METHODS if m != "adam")])
    for dtype in (torch.float64, torch.float32):
        table = _rounds_of(dtype, rounds, store)
        milliseconds = [f"{1e3 * median(column):.2f}" for column in zip(*table, strict=True)]
        shares = [
            f"{median(seconds[i] / seconds[theirs] for seconds in table):.2f}"
            for i in range(len(METHODS))
            if i != theirs
        ]
        lines.append(row([str(dtype).removeprefix("torch."), *milliseconds, *shares]))
        say(lines[-1])
    return lines


def _needs(store: Store, rounds: int) -> list[str]:
    """Measured times against the arithmetic and the memory traffic that cannot be done without."""
    depth, width = NETWORK
    sizes = [2, *[width] * (depth - 1), 2]
    lines = [
        "What they need at least, counted from the shapes (`counts.py` says how), at the rates measured here for",
        "matrix products and tanh on arrays of these sizes, and for copying:",
        "",
        *header(
            [
                "dtype",
                "",
                "10⁶ operations",
                "10⁶ tanh",
                "MB moved",
                "computing, ms",
                "moving, ms",
                "measured, ms",
                "measured / computing",
            ]
        ),
    ]
    for dtype in (torch.float64, torch.float32):
        speed = counts.rates(width, SAMPLES, dtype)
        measured = dict(zip(METHODS, map(median, zip(*_rounds_of(dtype, rounds, store), strict=True)), strict=True))
        for name, method, count in (
            ("fast sweep", "fast", counts.local_gain_sweep),
            ("Adam step", "adam", counts.adam_step),
        ):
            work = count(sizes, SAMPLES, torch.finfo(dtype).bits // 8)
            lines.append(row([str(dtype).removeprefix("torch."), name, *_need(work, speed, measured[method])]))
        lines.append(
            row(
                [
                    str(dtype).removeprefix("torch."),
                    "rates",
                    f"{speed.operations / 1e9:.1f} GFLOP/s",
                    f"{speed.tanhs / 1e6:.0f} M/s",
                    f"{speed.bytes / 1e9:.1f} GB/s",
                    "",
                    "",
                    "",
                    "",
                ]
            )
        )
    return lines


def _need(work: counts.Work, speed: counts.Rates, measured: float) -> list[str]:
    needed = speed.seconds(work)
    return [
        f"{work.operations / 1e6:.1f}",
        f"{work.tanhs / 1e6:.2f}",
        f"{work.bytes / 1e6:.0f}",
        f"{1e3 * needed:.2f}",
        f"{1e3 * speed.seconds_of_memory(work):.2f}",
        f"{1e3 * measured:.2f}",
        f"{measured / needed:.1f}",
    ]


def _where_the_time_goes(store: Store) -> list[str]:
    of_method = {method: where.shares(method, store) for method in METHODS}
    return [
        "Where the time goes, in float64, as shares under PyTorch's profiler (which makes calls dearer than they are):",
        "",
        *header(["", *map(_title, METHODS)]),
        *(row([kind, *(f"{of_method[method][kind]:.0%}" for method in METHODS)]) for kind in where.KINDS),
    ]


def _growth(axis: Axis, runs: dict[Point, Run]) -> list[str]:
    sizes = [f"{size:,}" for size in axis.sizes]
    fixed = axis.point(METHODS[0], axis.sizes[0])
    others = {"depth": fixed.depth, "width": fixed.width, "samples": fixed.samples}
    del others[axis.title]
    said = ", ".join(f"{name} {value:,}" for name, value in others.items())
    lines = [
        f"## Growth with {axis.title}",
        "",
        f"{said}; float64. Milliseconds of a pass over the data, and MB at the peak:",
        "",
    ]
    lines += header([axis.title, *sizes, "exponent", "of the last two"])
    for method in METHODS:
        values = [runs[axis.point(method, size)].history[0] for size in axis.sizes]
        seconds = [value[0] for value in values]
        cells = [f"{1e3 * value[0]:.3g} ({value[1] / 1e6:.0f} MB)" for value in values]
        fits = [exponent(axis.sizes, seconds), exponent(axis.sizes[-2:], seconds[-2:])]
        lines.append(row([_title(method), *cells, *(f"{fit:.2f}" for fit in fits)]))
    return lines


def _picture(axes: Sequence[Axis], runs: dict[Point, Run]) -> Figure:
    figure = new_figure(4.2 * len(axes), 3.8)
    for panel, axis in zip(figure.subplots(1, len(axes)), axes, strict=True):
        for place, method in enumerate(METHODS):
            seconds = [runs[axis.point(method, size)].history[0][0] for size in axis.sizes]
            label = f"{_title(method)}: {exponent(axis.sizes, seconds):.2f}"
            panel.loglog(axis.sizes, seconds, "o--" if method == "adam" else "o-", color=f"C{place}", label=label)
        panel.set(title=f"growth with {axis.title}", xlabel=axis.title)
        panel.grid(alpha=0.25)
        panel.legend(frameon=False, fontsize="small", title="exponent")
    figure.axes[0].set_ylabel("seconds of a pass over the data")
    return figure


def _title(method: str) -> str:
    return _NAMES.get(method, f"{method} sweep")
