"""One run: a model trained by anybody, under one clock and one scorer."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

import lysep
from lysep import machine
from lysep.baselines import OPTIMIZERS, minimize_cross_entropy
from lysep.problems import Split
from lysep.scoring import score
from lysep.studies.bench.problems import WHOLE, Batches, Problem
from lysep.studies.bench.starts import measured
from lysep.studies.runs import Outcome, Run

COLUMNS = ("seconds", "step", "cross_entropy", "accuracy", "test_cross_entropy", "test_accuracy")

SCORED = 5000  # training samples at most, the first ones: enough to see three digits of an accuracy
_HELD_BACK = 0.25  # of the training samples, to choose settings by
_FOREVER = 10**9


class Stopwatch:
    """Seconds that were spent training: scoring and recording pause it.

    They are seconds of the processor, on which a run has one thread. Where nothing else runs they are those of the wall
    clock, and where others compute as well it is not the run that pays for it.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.start()

    def start(self) -> None:
        self._spent, self._since = 0.0, self._clock()

    @property
    def seconds(self) -> float:
        return self._spent + self._clock() - self._since

    @contextmanager
    def paused(self) -> Iterator[float]:
        """Yields the seconds at which it was stopped."""
        self._spent = self.seconds
        try:
            yield self._spent
        finally:
            self._since = self._clock()


@dataclass(frozen=True)
class Candidate:
    """A way to train, with everything that could be chosen about it."""

    method: str
    start: str
    lr: float | None = None
    batches: Batches = WHOLE

    @property
    def title(self) -> str:
        batches = "" if self.batches.size is None else f", batches of {self.batches.size}"
        every = "" if self.batches.refresh_every == 1 else f" for {self.batches.refresh_every} steps"
        return f"{self.method}{'' if self.lr is None else f' {self.lr:g}'}, {self.start} start{batches}{every}"


@dataclass(frozen=True)
class Task:
    """A run to be done. It ends after `budget` seconds, or at a training cross-entropy of `until`."""

    problem: Problem
    candidate: Candidate
    seed: int
    budget: float
    until: float | None = None
    tuning: bool = False

    @property
    def specification(self) -> dict[str, Any]:
        return {
            "problem": self.problem.name,
            "digest": self.problem.digest,
            "network": list(self.problem.network_name),
            **asdict(self.candidate),
            "seed": self.seed,
            "budget": self.budget,
            "until": self.until,
            "tuning": self.tuning,
        }


class Recorder:
    """Scores the model as it is trained, off the clock, and says when to stop.

    After every step, but not before the clock has advanced by the factor `spacing` since the last time: a time that
    is read from the record is late by that little, whoever trained.
    """

    def __init__(self, task: Task, data: Split, watch: Stopwatch) -> None:
        self._task, self._data, self._watch = task, data, watch
        self._train = data.X_train[:SCORED], data.y_train[:SCORED]
        self._next, self._scored = 0.0, 0
        self.step = 0
        self.rows: list[tuple[float, ...]] = []
        self.ended = "finished by itself"

    def __call__(self, step: int, model: Callable[[], nn.Module]) -> bool:
        """Whether to stop. `model` is asked for only when it is scored."""
        self.step = step
        with self._watch.paused() as seconds:
            over = seconds >= self._task.budget
            if seconds >= self._next or over:
                self.score(seconds, model())
                self._next = seconds * self._task.problem.spacing
            reached = bool(self.rows) and self._task.until is not None and self.rows[-1][2] <= self._task.until
            broken = bool(self.rows) and not math.isfinite(self.rows[-1][2])
            if over or reached or broken:
                self.ended = "out of time" if over else "reached the goal" if reached else "diverged"
            return over or reached or broken

    def finish(self, model: nn.Module) -> None:
        """Score the end of a run that ended by itself, between two scores."""
        with self._watch.paused() as seconds:
            if self._scored < self.step:
                self.score(seconds, model)

    def score(self, seconds: float, model: nn.Module) -> None:
        self._scored = self.step
        dtype = next(model.parameters()).dtype
        test = self._data.X_test, self._data.y_test
        self.rows.append(
            (seconds, self.step, *(value for X, y in (self._train, test) for value in score(model, X.to(dtype), y)))
        )


def train(task: Task) -> Run:
    """Do a run. What goes wrong in training is recorded as a failed run."""
    data = _data(task.problem, task.seed, task.tuning)
    dtype = next(task.problem.network(0, "pytorch").parameters()).dtype
    X, y = data.X_train.to(dtype), data.y_train
    model = _network(task)
    recorder = Recorder(task, data, watch := Stopwatch())
    recorder.score(0.0, model)
    try:
        _train(copy.deepcopy(model), X, y, task, lambda step, _: step == 2)  # libraries are loaded, off the clock
        watch.start()
        _train(model, X, y, task, recorder)
        recorder.finish(model)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        outcome = Outcome("failed", " ".join(f"{type(error).__name__}: {error}".split()), recorder.step, watch.seconds)
    else:
        outcome = Outcome("ok", recorder.ended, recorder.step, watch.seconds)
    where = machine.describe() | {"load": round(machine.load(), 2)}
    return Run(task.specification, where, COLUMNS, recorder.rows, outcome)


Watch = Callable[[int, Callable[[], nn.Module]], bool]


def _train(model: nn.Module, X: torch.Tensor, y: torch.Tensor, task: Task, watch: Watch) -> None:
    """Train until the watch says stop. The measured start is part of training: it looks at the data."""
    candidate = task.candidate
    if candidate.start == "measured":
        measured(model, X[: candidate.batches.size], y[: candidate.batches.size])
    options = {
        "batch_size": candidate.batches.size,
        "refresh_every": candidate.batches.refresh_every,
        "seed": task.seed,
    }
    if candidate.method in OPTIMIZERS:
        assert candidate.lr is not None
        minimize_cross_entropy(
            model,
            X,
            y,
            candidate.method,
            candidate.lr,
            _FOREVER,
            callbacks=[lambda step: watch(step.sweep, lambda: step.model)],
            **options,  # type: ignore[arg-type]
        )
        return
    scratch = copy.deepcopy(model)

    def seen(progress: lysep.Progress) -> bool:
        def written() -> nn.Module:
            lysep.write_back(progress.state, scratch)
            return scratch

        return watch(progress.sweep, written)

    lysep.fit(model, X, y, method=candidate.method, sweeps=_FOREVER, callbacks=[seen], **options)  # type: ignore[arg-type]


def _network(task: Task) -> nn.Module:
    start = "pytorch" if task.candidate.start == "measured" else task.candidate.start
    return task.problem.network(task.seed, start)


@lru_cache(maxsize=2)
def _data(problem: Problem, seed: int, tuning: bool) -> Split:
    """For tuning, a part of the training samples stands in for the test samples of that seed.

    Where every seed splits the same samples anew, the splits of other seeds overlap with it, for everybody alike.
    """
    data = problem.load(seed)
    if not tuning:
        return data
    kept = len(data.y_train) - round(_HELD_BACK * len(data.y_train))
    return Split(data.X_train[:kept], data.y_train[:kept], data.X_train[kept:], data.y_train[kept:])
