"""What is compared on: data, networks, budgets. All of it is data; nothing here trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from lysep.problems import Split, circle, cnn, digits, fnn, interface, mnist

THRESHOLDS = (3.39e-2, 1e-2, 1e-3, 1e-4)  # training cross-entropies; the first is the paper's after 10,000 iterations
FRACTIONS = (1 / 6, 1 / 2, 1.0)  # of the budget: when held-out accuracy is read


class Batches(NamedTuple):
    """A subset of so many samples, drawn anew every so many steps. None: all the samples, always."""

    size: int | None = None
    refresh_every: int = 1


WHOLE = Batches()


@dataclass(frozen=True)
class Problem:
    """Data and a network to train on them, with the seconds that everybody gets, and the seeds that are reported.

    `network` takes a seed and the name of a start. `target` is the training cross-entropy that settings are chosen for
    and `THRESHOLDS` are counted; None: what counts is held-out accuracy. `gradient`, `lbfgs` and `separation` are the
    batch schedules among which each kind of method may choose; `spacing`: see `training.Recorder`.
    """

    name: str
    title: str
    network_name: tuple[int, int]
    load: Callable[[int], Split]
    network: Callable[[int, str], nn.Module]
    budget: float
    target: float | None = None
    seeds: int = 10
    gradient: Sequence[Batches] = (WHOLE,)
    lbfgs: Sequence[Batches] = (WHOLE,)
    separation: Sequence[Batches] = (WHOLE,)
    spacing: float = 1.03
    digest: str | None = None


def dense(depth: int, width: int, inputs: int, classes: int, seed: int, start: str) -> nn.Module:
    return fnn(depth, width, inputs=inputs, classes=classes, start=start, seed=seed)  # type: ignore[arg-type]  # a name


def _cnn(convolutions: int, channels: int, seed: int, start: str) -> nn.Module:
    return cnn(convolutions, channels, start=start, seed=seed, dtype=torch.float32)  # type: ignore[arg-type]


def _mnist(seed: int) -> Split:
    return mnist()  # the seed draws network and batches


def _flat_digits(seed: int) -> Split:
    split = digits(seed)
    return split._replace(X_train=split.X_train.flatten(1), X_test=split.X_test.flatten(1))


def _rung(depth: int, budget: float) -> Problem:
    return Problem(
        "circle", f"circle ({depth},10)", (depth, 10), circle, partial(dense, depth, 10, 2, 2), budget, target=1e-2
    )


def _digits(depth: int, budget: float) -> Problem:
    return Problem(
        "digits",
        f"digits ({depth},30)",
        (depth, 30),
        _flat_digits,
        partial(dense, depth, 30, 64, 10),
        budget,
        seeds=5,
        gradient=(WHOLE, Batches(128)),
        separation=(WHOLE, Batches(256)),
    )


LADDER = tuple(_rung(depth, budget) for depth, budget in ((3, 3), (5, 3), (10, 4), (20, 8), (50, 16), (100, 16)))

HELD_OUT = (
    _digits(3, 6.0),
    _digits(10, 6.0),
    _digits(20, 6.0),
    Problem(
        "interface",
        "interface at t = 0.004 (10,10)",
        (10, 10),
        partial(interface, 0.004),
        partial(dense, 10, 10, 2, 2),
        6.0,
        seeds=5,
    ),
    Problem(
        "mnist",
        "MNIST (2,4)",
        (2, 4),
        _mnist,
        partial(_cnn, 2, 4),
        60.0,
        seeds=3,
        gradient=(Batches(100), Batches(500)),
        lbfgs=(Batches(3000, 10),),
        separation=(Batches(500), Batches(1500)),
        spacing=1.2,
    ),
)
