"""The only loop over sweeps: batches, stopping, history, callbacks, and the one write to the model at the end."""

from __future__ import annotations

import enum
import math
import numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lysep.arithmetic import exact
from lysep.data import Batch, NonFiniteError, Source, check_classes
from lysep.history import COLUMNS, VALIDATION_COLUMNS, History
from lysep.methods import Memory, Method, SweepLog, resolve
from lysep.network import Network, parse, refuse_frozen
from lysep.objective import Evaluated, scores
from lysep.state import State, checked, separate_batch, write_back


class Status(enum.Enum):
    """Why a run ended; the value is the message."""

    COMPLETED = "ran all the sweeps that were asked for"
    TOLERANCE = "the objective fell by less than the tolerance"
    STALLED = "no update lowers the objective any more in floating point"
    TIME_LIMIT = "reached the time limit; the best state so far was kept"
    INTERRUPTED = "interrupted from the keyboard; the best state so far was kept"
    STOPPED = "a callback ended the run"
    NON_FINITE = "met a non-finite value; the last good state was kept"

    @property
    def message(self) -> str:
        return self.value


@dataclass(frozen=True)
class FitResult:
    """The trained model (the one that was passed in), why the run ended, and what happened on the way.

    `remarks` say what a person might not expect, such as that the method has rescaled layers before it began.
    """

    model: nn.Module
    status: Status
    history: History
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = [f"status={self.status.name}: {self.status.message}", repr(self.history), *self.remarks]
        return f"FitResult({'; '.join(parts)})"


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every sweep. `state` is the state just reached; the model is not written yet."""

    sweep: int
    row: dict[str, float]
    state: State


Callback = Callable[[Progress], Any]

# What a run gains is judged over so many sweeps of one batch: a single sweep may gain little by chance.
_WINDOW = 10


def fit(
    model: nn.Module,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    method: str | Method[Any] = "fast",
    sweeps: int = 1000,
    batch_size: int | None = None,
    refresh_every: int = 200,
    validation: tuple[Any, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    time_limit: float | None = None,
    tolerance: float | None = None,
    seed: int = 0,
) -> FitResult:
    """Train a PyTorch classifier by layer separation.

    Parameters
    ----------
    model
        An `nn.Sequential` (nested too) of Linear, Conv2d, AvgPool2d, Flatten, Identity and pointwise activations that
        ends with a Linear layer: the logits. It is trained in place, on its own device and in its own dtype.
    X, y
        Samples in rows and integer labels 0 … classes−1: tensors, arrays, data frames, or any indexable dataset (which
        may yield (features, label) pairs; then leave y out).
    sample_weight
        One number a sample, not negative; a sample of weight 2 counts as two samples. None: all count once.
    method
        "fast", "paper" (the algorithms as published), or an instance with options, such as `lysep.Fast(start="given")`
        or `lysep.Paper(step="lipschitz")`.
    sweeps
        How many times to update every variable once (the paper's iterations).
    batch_size
        Train on a random subset of this size, replaced every `refresh_every` sweeps. None: all the data at once.
    refresh_every
        See `batch_size`. New samples get new auxiliary variables, by a forward pass.
    validation
        A pair (X, y) that is scored after every sweep, and recorded.
    callbacks
        Called with a `Progress` after every sweep; the run ends if one returns True.
    progress
        Show a progress bar.
    time_limit
        In seconds; the run ends after the first sweep that passes it.
    tolerance
        End when the objective falls by less than this fraction over ten sweeps (or over those that a batch has, where
        `refresh_every` is smaller).
    seed
        For the choice of mini-batches. The global random state is not touched.

    Returns
    -------
    FitResult
        With `model`, `status` and `history`. The objective in the history never rises within a batch, and the
        cross-entropy never exceeds the `bound`.

    Examples
    --------
    >>> import torch, lysep
    >>> X = torch.rand(200, 2) * 2 - 1
    >>> y = (X.norm(dim=1) < 0.8).long()
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 10), torch.nn.Tanh(), torch.nn.Linear(10, 2))
    >>> result = lysep.fit(model, X, y, sweeps=20)
    >>> result.status.message
    'ran all the sweeps that were asked for'
    """
    started = time.perf_counter()
    chosen = resolve(method)
    source = Source(X, y, sample_weight)
    _check_options(len(source), sweeps, batch_size, refresh_every, time_limit, tolerance, seed)
    _check_callbacks(callbacks)
    network = parse(model, source.sample_shape)
    refuse_frozen(model)
    source.check(network)
    held_out = None if validation is None else _validation(validation, network)
    batches = _Batches(source, network, batch_size, refresh_every, seed)
    with exact(network.device):
        given = chosen.evaluate(separate_batch(model, network, batches.next()))
        start, memory = chosen.begin(given)
        if batch_size is None:
            check_classes(start.labels)  # of a dataset of pairs they are known only now
        run = _Run(chosen, batches, held_out, tuple(callbacks), started, time_limit, tolerance, start, memory)
        try:
            with tqdm(total=sweeps, disable=not progress, unit="sweep") as bar:
                status = run.sweep_through(sweeps, bar)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    status = _write_all(run.iterate.state, model, status)
    return FitResult(model, status, run.history, chosen.remarks(given, start))


def sweep(state: State, method: str | Method[Any] = "paper") -> State:
    """One sweep: the state after it. The argument is left unchanged."""
    chosen, state = resolve(method), checked(state)
    with exact(state.network.device):
        iterate, _, _ = chosen.sweep(*chosen.begin(chosen.evaluate(state)))
    after: State = iterate.state
    return after


def _write_all(state: State, model: nn.Module, status: Status) -> Status:
    """Write back, whole: an impatient second Ctrl-C must not leave half of a model."""
    while True:
        try:
            write_back(state, model)
            return status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED


class _Batches:
    """The samples to train on, now and after every refresh."""

    def __init__(self, source: Source, network: Network, size: int | None, refresh_every: int, seed: int) -> None:
        self._source, self._network, self._size = source, network, size
        self._refresh_every = refresh_every
        self._generator = torch.Generator(device="cpu").manual_seed(int(seed))
        self.drawn = 0

    @property
    def partial(self) -> bool:
        return self._size is not None

    def longest(self, window: int) -> int:
        """A window of so many sweeps, or of as many as one batch has."""
        return window if self._size is None else min(window, self._refresh_every - 1)

    def due(self, sweeps_done: int) -> bool:
        return self._size is not None and sweeps_done > 0 and sweeps_done % self._refresh_every == 0

    def next(self) -> Batch:
        self.drawn += 1
        if self._size is None:
            return self._source.batch(None, self._network)
        order = torch.randperm(len(self._source), generator=self._generator, device="cpu")
        return self._source.batch(order[: self._size], self._network)


class _Run:
    """One run in progress; `iterate` is always a complete, accepted state."""

    def __init__(
        self,
        method: Method[Any],
        batches: _Batches,
        validation: Batch | None,
        callbacks: tuple[Callback, ...],
        started: float,
        time_limit: float | None,
        tolerance: float | None,
        start: Evaluated,
        memory: Memory,
    ) -> None:
        self.iterate, self._memory = start, memory
        self.history = History(COLUMNS + (VALIDATION_COLUMNS if validation is not None else ()))
        self._method, self._batches, self._validation = method, batches, validation
        self._callbacks, self._started = callbacks, started
        self._time_limit, self._tolerance = time_limit, tolerance

    def sweep_through(self, sweeps: int, bar: Any) -> Status:
        if not math.isfinite(self._method.objective(self.iterate)):
            return Status.NON_FINITE
        for done in range(sweeps):
            if self._batches.due(done):
                try:
                    self._refresh()
                except NonFiniteError:
                    return Status.NON_FINITE
            new, self._memory, log = self._method.sweep(self.iterate, self._memory)
            if not math.isfinite(self._method.objective(new)):
                return Status.NON_FINITE
            stalled = new is self.iterate
            row = self._row(done + 1, new, log)
            self.iterate = new
            self.history.append(row)
            bar.set_postfix(loss=f"{row['cross_entropy']:.3g}", accuracy=f"{row['accuracy']:.2%}", refresh=False)
            bar.update()
            event = Progress(done + 1, dict(row), new.state)
            answers = [callback(event) for callback in self._callbacks]  # every one is called, whatever another says
            if any(_says_stop(answer) for answer in answers):
                return Status.STOPPED
            if self._time_limit is not None and row["seconds"] >= self._time_limit:
                return Status.TIME_LIMIT
            gained = self._gained_lately()
            if (stalled or gained == 0.0) and not self._batches.partial:
                return Status.STALLED  # new samples may set a mini-batch run going again
            if self._tolerance is not None and gained < self._tolerance:
                return Status.TOLERANCE
        return Status.COMPLETED

    def _refresh(self) -> None:
        self.iterate = self._method.renew(self.iterate, self._batches.next())

    def _row(self, sweep: int, it: Evaluated, log: SweepLog) -> dict[str, float]:
        cross_entropy, accuracy = it.scores()
        row = {
            "sweep": sweep,
            "batch": self._batches.drawn,
            "objective": self._method.objective(it),
            "separated_loss": it.separated_loss,
            "cross_entropy": cross_entropy,
            "accuracy": accuracy,
            "bound": it.bound,
            "seconds": time.perf_counter() - self._started,
            "rejected_updates": log.rejected_updates,
            "line_search_evaluations": log.line_search_evaluations,
            "skipped_updates": log.skipped_updates,
        }
        if self._validation is not None:
            loss, correct = scores(it.network, it.weights, it.biases, *self._validation)
            row |= {"validation_cross_entropy": loss, "validation_accuracy": correct}
        return row

    def _gained_lately(self) -> float:
        """The fraction of the objective that the last sweeps on this batch took off; infinite if they are too few."""
        window = self._batches.longest(_WINDOW)
        if len(self.history) <= window:
            return math.inf
        earlier, last = self.history.row(-1 - window), self.history.row(-1)
        if earlier["batch"] != last["batch"]:
            return math.inf
        fell = earlier["objective"] - last["objective"]
        return fell / earlier["objective"] if fell > 0.0 else 0.0


def _says_stop(answer: Any) -> bool:
    """True, as Python, NumPy or PyTorch writes it. Anything else that a callback returns means nothing."""
    if isinstance(answer, Tensor) and answer.dtype == torch.bool and answer.numel() == 1:
        return bool(answer)
    return isinstance(answer, bool | np.bool_) and bool(answer)


def _validation(pair: Any, network: Network) -> Batch:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"validation must be a pair (X, y), but is a {type(pair).__name__}.")
    try:
        return Source(*pair).batch(None, network)
    except ValueError as error:
        raise ValueError(f"validation: {error}") from error


def _check_options(
    samples: int,
    sweeps: int,
    batch_size: int | None,
    refresh_every: int,
    time_limit: float | None,
    tolerance: float | None,
    seed: int,
) -> None:
    _check_count("sweeps", sweeps)
    _check_count("refresh_every", refresh_every)
    if batch_size is not None:
        _check_count("batch_size", batch_size)
        if batch_size > samples:
            raise ValueError(
                f"batch_size={batch_size} is larger than the data ({samples} samples). Use at most {samples}, or None."
            )
    if time_limit is not None and not (isinstance(time_limit, numbers.Real) and time_limit > 0.0):
        raise ValueError(f"time_limit={time_limit!r} must be a positive number of seconds, or None.")
    if tolerance is not None and batch_size is not None and refresh_every == 1:
        raise ValueError("tolerance compares sweeps of one batch, but refresh_every=1 leaves one sweep a batch.")
    if tolerance is not None and not (isinstance(tolerance, numbers.Real) and tolerance >= 0.0):
        raise ValueError(f"tolerance={tolerance!r} must be zero or a positive number, or None.")
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed!r} must be an integer from 0 to 2^63 − 1.")


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, list | tuple):
        raise ValueError(f"callbacks={callbacks!r} must be a list of functions.")
    for callback in callbacks:
        if not callable(callback):
            raise ValueError(f"callbacks holds {callback!r}, which cannot be called.")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be a positive integer.")
