"""The only loop over sweeps: batches, stopping, history, callbacks, and the one write to the model at the end."""

from __future__ import annotations

import enum
import math
import numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from torch import nn

from lysep.arithmetic import exact
from lysep.batches import Batches
from lysep.callbacks import Callback, Callbacks, Progress
from lysep.checkpoint import Checkpoint, append_columns, identity
from lysep.data import Batch, NonFiniteError, Source, check_classes
from lysep.history import COLUMNS, VALIDATION_COLUMNS, History
from lysep.methods import Memory, Method, SweepLog, resolve
from lysep.network import Network, parse, refuse_frozen
from lysep.objective import Evaluated, scores
from lysep.progress import ProgressBar
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

    The model is that of sweep `kept_sweep`: the last one, unless a callback such as `EarlyStopping` chose another.
    `remarks` say what a person might not expect, such as that the method has rescaled layers before it began.
    """

    model: nn.Module
    status: Status
    history: History
    kept_sweep: int
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = [f"status={self.status.name}: {self.status.message}", repr(self.history)]
        if self.kept_sweep != len(self.history):
            parts.append(f"the model is that of sweep {self.kept_sweep}")
        return f"FitResult({'; '.join([*parts, *self.remarks])})"


# What a run gains is judged over so many sweeps of one batch: a single sweep may gain little by chance.
_WINDOW = 10

# Of a state, what a sweep changes; the rest of it is made again from the model and the data.
_VARIABLES = ("weights", "biases", "aux", "head_weight", "head_bias")


def fit(
    model: nn.Module,
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    method: str | Method[Any] = "fast",
    sweeps: int = 1000,
    batch_size: int | None = None,
    refresh_every: int | None = None,
    validation: tuple[Any, ...] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    time_limit: float | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
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
        See `batch_size`. New samples get new auxiliary variables, by a forward pass. None: as suits the method, which
        is 1 for "fast" and, as in the paper, 200 for "paper".
    validation
        A pair (X, y), or (X, y, sample_weight), that is scored after every sweep, and recorded.
    callbacks
        Called with a `Progress` after every sweep; the run ends if one returns True. See `lysep.callbacks` for those
        there are (`EarlyStopping`, `CSVLog`, `TensorBoardLog`) and what else a callback may do.
    progress
        Show a progress bar, where there is a terminal or a notebook to show it.
    time_limit
        In seconds; the run ends after the first sweep that passes it.
    tolerance
        End when the objective falls by less than this fraction over ten sweeps (or over those that a batch has, where
        `refresh_every` is smaller).
    seed
        For the choice of mini-batches. The global random state is not touched.
    checkpoint
        A directory for this run. What it takes to go on is written there, and where it is there already the run goes
        on from it, and ends as if it had never been interrupted, bit for bit. Whatever ends a run may be changed for
        that (`sweeps`, `time_limit`, which counts anew, `tolerance`); all else has to be what it was. The model's own
        parameters are then not looked at.
    checkpoint_every
        Seconds from one writing to the next. It is also written at the start and at the end.

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
    refresh_every = chosen.refresh_every if refresh_every is None else refresh_every
    source = Source(X, y, sample_weight)
    _check_options(len(source), sweeps, batch_size, refresh_every, time_limit, tolerance, seed, checkpoint_every)
    told = Callbacks(callbacks)
    network = parse(model, source.sample_shape)
    refuse_frozen(model)
    source.check(network)
    held_out = None if validation is None else _validation(validation, network)
    batches = Batches(source, network, batch_size, refresh_every, seed)
    keeper = None
    if checkpoint is not None:
        others: dict[str, object] = {"method": chosen, "callbacks": told, "seed": int(seed)}
        if batch_size is not None:
            others |= {"batch_size": int(batch_size), "refresh_every": int(refresh_every)}
        keeper = Checkpoint(checkpoint, checkpoint_every, identity(model, network, source, held_out, others))
    with exact(network.device):
        saved = None if keeper is None else keeper.load(network.device)
        if saved is None:
            given = chosen.evaluate(separate_batch(model, network, batches.next()))
            start, memory = chosen.begin(given)
            remarks = chosen.remarks(given, start)
        else:
            batches.load_state_dict(saved["batches"])
            start, memory = chosen.evaluate(_restored(saved["variables"], network, batches.next())), saved["memory"]
            remarks = tuple(saved["remarks"])
        if batch_size is None:
            check_classes(start.labels)  # of a dataset of pairs they are known only now
        run = _Run(chosen, batches, held_out, told, keeper, started, time_limit, tolerance, start, memory, remarks)
        if saved is not None:
            run.resume(saved, sweeps)
        try:
            with ProgressBar(sweeps, progress, done=len(run.history), time_limit=time_limit) as bar:
                status = run.sweep_through(sweeps, bar)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    if keeper is not None:
        status = _to_the_end(keeper.flush, status)
    kept = run.finish()
    status = _to_the_end(lambda: write_back(kept.state, model), status)
    return FitResult(model, status, run.history, kept.sweep, remarks)


def sweep(state: State, method: str | Method[Any] = "paper") -> State:
    """One sweep: the state after it. The argument is left unchanged."""
    chosen, state = resolve(method), checked(state)
    with exact(state.network.device):
        iterate, _, _ = chosen.sweep(*chosen.begin(chosen.evaluate(state)))
    after: State = iterate.state
    return after


def _to_the_end(write: Callable[[], None], status: Status) -> Status:
    """An impatient second Ctrl-C must not leave half of a model, nor lose what can be gone on from."""
    while True:
        try:
            write()
            return status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED


def _restored(variables: dict[str, Any], network: Network, batch: Batch) -> State:
    return State(network, inputs=batch.X, labels=batch.y, sample_weight=batch.sample_weight, **variables)


class _Run:
    """One run in progress; `iterate` is always a complete, accepted state."""

    def __init__(
        self,
        method: Method[Any],
        batches: Batches,
        validation: Batch | None,
        callbacks: Callbacks,
        checkpoint: Checkpoint | None,
        started: float,
        time_limit: float | None,
        tolerance: float | None,
        start: Evaluated,
        memory: Memory,
        remarks: tuple[str, ...],
    ) -> None:
        self.iterate, self._memory, self._remarks = start, memory, remarks
        self.history = History(COLUMNS + (VALIDATION_COLUMNS if validation is not None else ()))
        self._method, self._batches, self._validation = method, batches, validation
        self._callbacks, self._checkpoint = callbacks, checkpoint
        self._started, self._earlier = started, 0.0  # seconds spent by earlier calls
        self._time_limit, self._tolerance = time_limit, tolerance
        self._stopped = self._stalled = False
        callbacks.begin()

    def resume(self, saved: dict[str, Any], sweeps: int) -> None:
        """Be what `_mark` has noted; `iterate` and memory are that already."""
        append_columns(self.history, saved["history"])
        if sweeps < len(self.history):
            raise ValueError(
                f"sweeps={sweeps}, but the checkpoint has run {len(self.history)} already. Ask for at least as many, "
                "or use another directory."
            )
        self._stopped, self._stalled = saved["stopped"], saved["stalled"]
        self._callbacks.load_state_dicts(saved["callbacks"])
        self._earlier = self.history.row(-1)["seconds"] if len(self.history) else 0.0

    def finish(self) -> Progress:
        """What the model gets."""
        sweeps = len(self.history)
        last = Progress(sweeps, self.history.row(-1) if sweeps else {}, self.iterate.state)
        return self._callbacks.finish(last) if sweeps else last

    def sweep_through(self, sweeps: int, bar: ProgressBar) -> Status:
        if not math.isfinite(self._method.objective(self.iterate)):
            return Status.NON_FINITE
        if not len(self.history):
            self._mark()
        while (ended := self._ended()) is None and len(self.history) < sweeps:
            done = len(self.history)
            if self._batches.due(done):
                try:
                    self._refresh()
                except NonFiniteError:
                    return Status.NON_FINITE
            new, self._memory, log = self._method.sweep(self.iterate, self._memory)
            if not math.isfinite(self._method.objective(new)):
                return Status.NON_FINITE
            self._stalled = new is self.iterate
            row = self._row(done + 1, new, log)
            self.iterate = new
            self.history.append(row)
            bar.show(row)
            self._stopped = self._callbacks(Progress(done + 1, row, new.state))
            self._mark()
        return ended or Status.COMPLETED

    def _ended(self) -> Status | None:
        """Why the run is over after the sweeps that it has made; None if it is not."""
        if self._stopped:
            return Status.STOPPED
        spent = self.history.row(-1)["seconds"] - self._earlier if len(self.history) else 0.0
        if self._time_limit is not None and spent >= self._time_limit:
            return Status.TIME_LIMIT
        gained = self._gained_lately()
        if (self._stalled or gained == 0.0) and not self._batches.partial:
            return Status.STALLED  # new samples may set a mini-batch run going again
        if self._tolerance is not None and gained < self._tolerance:
            return Status.TOLERANCE
        return None

    def _mark(self) -> None:
        """A sweep is complete, with all that follows from it: a point to go on from. Everything here is a value."""
        if self._checkpoint is None:
            return
        state = self.iterate.state
        content = {
            "variables": {name: getattr(state, name) for name in _VARIABLES},
            "memory": dict(self._memory),
            "remarks": self._remarks,
            "batches": self._batches.state_dict(),
            "callbacks": self._callbacks.state_dicts(),
            "stopped": self._stopped,
            "stalled": self._stalled,
        }
        self._checkpoint.mark(content, self.history)

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
            "seconds": self._earlier + time.perf_counter() - self._started,
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


def _validation(pair: Any, network: Network) -> Batch:
    if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
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
    checkpoint_every: float,
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
        raise ValueError(
            "tolerance compares sweeps of one batch, but refresh_every=1 (what method='fast' has if it is not told) "
            "leaves one sweep a batch. Leave tolerance out, or set refresh_every."
        )
    if tolerance is not None and not (isinstance(tolerance, numbers.Real) and tolerance >= 0.0):
        raise ValueError(f"tolerance={tolerance!r} must be zero or a positive number, or None.")
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(f"seed={seed!r} must be an integer from 0 to 2^63 − 1.")
    if not isinstance(checkpoint_every, numbers.Real) or not checkpoint_every >= 0.0:
        raise ValueError(f"checkpoint_every={checkpoint_every!r} must be a number of seconds, zero for every sweep.")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be a positive integer.")
