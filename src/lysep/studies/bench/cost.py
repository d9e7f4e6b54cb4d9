"""What a sweep costs: against an Adam step, against the arithmetic it needs, and as problems grow.

The growth is that of fully connected networks on the circle problem, every point in a process of its own, so that its
peak memory is its own too.
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import lysep
from lysep import machine
from lysep.baselines import OPTIMIZERS, minimize_cross_entropy
from lysep.problems import circle, fnn
from lysep.studies.bench.training import Stopwatch
from lysep.studies.runs import Outcome, Run, Store

METHODS = ("fast", "paper", "adam")
NETWORK, SAMPLES = (20, 10), 3000
AT_ONCE = 100_000  # samples; beyond, a pass goes through the data in batches of so many

ROUNDS = 11
_WARM_UP, _TIMED = 2, 10
_STARTS = {"paper": "separation", "fast": "pytorch", "adam": "xavier"}


@dataclass(frozen=True)
class Point:
    """A method on a network of some depth and width, on so many samples."""

    method: str
    depth: int
    width: int
    samples: int
    steps: int = 8

    @property
    def specification(self) -> dict[str, Any]:
        return {
            "problem": "cost",
            "network": [self.depth, self.width],
            "method": self.method,
            "samples": self.samples,
            "steps": self.steps,
        }


@dataclass(frozen=True)
class Axis:
    """One size grows, the others stay."""

    title: str
    sizes: Sequence[int]
    point: Callable[[str, int], Point]

    def points(self) -> list[Point]:
        return [self.point(method, size) for method in METHODS for size in self.sizes]


AXES = (
    Axis("samples", (1000, 10_000, 100_000, 1_000_000), lambda method, size: Point(method, *NETWORK, size)),
    Axis("depth", (5, 10, 20, 50, 100, 200), lambda method, size: Point(method, size, 10, SAMPLES)),
    Axis("width", (10, 32, 64, 128, 256, 512), lambda method, size: Point(method, 5, size, SAMPLES)),
)


def measured(point: Point) -> Run:
    """Seconds of a pass over the data, and the peak of memory above that of data and network, in this process."""
    torch.set_num_threads(1)
    data, model = circle(train=point.samples, test=1), network(point.method, point.depth, point.width)
    batch = None if point.samples <= AT_ONCE else AT_ONCE
    before = _peak_memory(anew=True)
    ticks = clock_readings(point.method, model, data.X_train, data.y_train, point.steps, batch)
    step = median(b - a for a, b in pairwise(ticks[1:]))  # the first warms up
    values = (step * point.samples / (batch or point.samples), float(_peak_memory() - before))
    outcome = Outcome("ok", "measured", point.steps, ticks[-1])
    where = machine.describe() | {"load": machine.load()}
    return Run(point.specification, where, ("seconds", "bytes"), [values], outcome)


def in_a_process_of_its_own(point: Point) -> Run:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measured, point).result()


def grow(points: Sequence[Point], store: Store, say: Callable[[str], None]) -> dict[Point, Run]:
    """Every point, each measured once ever."""
    runs = {}
    for place, point in enumerate(points, start=1):
        run = store.get(point.specification)
        if run is None:
            run = in_a_process_of_its_own(point)
            store.save(run)
            say(
                f"[{place}/{len(points)}] {point.method} ({point.depth},{point.width}), {point.samples:,} samples: "
                f"{1e3 * run.history[0][0]:.3g} ms"
            )
        runs[point] = run
    return runs


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The p of seconds ~ sizeᵖ, by least squares of the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in seconds]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    moment = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return moment / sum((a - x_mean) ** 2 for a in x)


def in_turn(dtype: torch.dtype, methods: Sequence[str] = METHODS, rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds of a sweep or step, a row a round: the methods take turns, since a machine's speed wanders."""
    data = circle(train=SAMPLES, test=1)
    X, y = data.X_train.to(dtype), data.y_train
    return [[_seconds_a_step(method, X, y) for method in methods] for _ in range(rounds)]


def _seconds_a_step(method: str, X: Tensor, y: Tensor) -> float:
    """Of the sweeps or steps after the first few of a run: whatever happens in them counts, recording included."""
    ticks = clock_readings(method, network(method, *NETWORK, X.dtype), X, y, _WARM_UP + _TIMED)
    return (ticks[-1] - ticks[_WARM_UP - 1]) / (len(ticks) - _WARM_UP)


def network(method: str, depth: int, width: int, dtype: torch.dtype = torch.float64) -> nn.Module:
    """From a start with which the method has work to do."""
    return fnn(depth, width, start=_STARTS[method], dtype=dtype)  # type: ignore[arg-type]  # a name of a start


def clock_readings(
    method: str, model: nn.Module, X: Tensor, y: Tensor, steps: int, batch: int | None = None
) -> list[float]:
    """After each of so many sweeps or steps; with a batch, of new samples in each."""
    watch, ticks = Stopwatch(), list[float]()
    options: Any = {"batch_size": batch, "refresh_every": 1, "callbacks": [lambda _: ticks.append(watch.seconds)]}
    if method in OPTIMIZERS:
        minimize_cross_entropy(model, X, y, method, 1e-3, steps, **options)
    else:
        lysep.fit(model, X, y, method=method, sweeps=steps, **options)
    return ticks


def _peak_memory(anew: bool = False) -> int:
    """The most bytes that this process has held: since it began, or on Linux since it was last called with `anew`."""
    status = Path("/proc/self/status")
    if not status.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    kilobytes = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(kilobytes)
