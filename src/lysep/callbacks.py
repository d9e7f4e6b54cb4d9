"""What a run tells, and to whom: early stopping, logs, and any function of a `Progress`.

A callback is called with a `Progress` after every sweep, and ends the run by returning True. It may be an object that
has more, each of it optional:

    begin()                  when a run begins, or is continued: forget earlier runs
    finish(progress)         when it has ended; may return another Progress, whose parameters the model then gets
    state_dict()             what it has to remember for the run to be continued exactly: tensors, numbers, strings,
                             lists and dictionaries of them, read after every sweep where the run writes checkpoints
    load_state_dict(state)   takes it back, after `begin`
"""

from __future__ import annotations

import copy
import csv
import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lysep.state import State


@dataclass(frozen=True)
class Progress:
    """What a callback gets after every sweep. `state` is the state just reached; the model is not written yet."""

    sweep: int
    row: dict[str, float]
    state: State


Callback = Callable[[Progress], Any]


class EarlyStopping:
    """End a run that does not get better on held-out data, and give back its best model.

    Parameters
    ----------
    patience
        End after so many sweeps without an improvement.
    min_delta
        What counts as one: more than this, over the last that counted.
    monitor
        A column of the history. Less is better; more is, of an accuracy.
    restore_best
        At the end, whatever ended it, the model gets the parameters of the best sweep. False: those of the last.

    Examples
    --------
    >>> import torch, lysep
    >>> X = torch.rand(300, 2) * 2 - 1
    >>> y = (X.norm(dim=1) < 0.8).long()
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 10), torch.nn.Tanh(), torch.nn.Linear(10, 2))
    >>> stopping = lysep.EarlyStopping(patience=5)
    >>> result = lysep.fit(model, X[:200], y[:200], validation=(X[200:], y[200:]), callbacks=[stopping])
    >>> result.kept_sweep == stopping.best_sweep
    True
    """

    def __init__(
        self,
        patience: int = 10,
        *,
        min_delta: float = 0.0,
        monitor: str = "validation_cross_entropy",
        restore_best: bool = True,
    ) -> None:
        self.patience: int = patience
        self.min_delta: float = min_delta
        self.monitor: str = monitor
        self.restore_best: bool = restore_best
        if not isinstance(patience, numbers.Integral) or isinstance(patience, bool) or patience < 1:
            raise ValueError(f"patience={patience!r} must be a positive integer.")
        if not isinstance(min_delta, numbers.Real) or not 0.0 <= min_delta < math.inf:
            raise ValueError(f"min_delta={min_delta!r} must be zero or a positive number.")
        self.begin()

    def begin(self) -> None:
        self.best_row: dict[str, float] | None = None
        self._parameters: dict[str, Any] = {}
        self._reference, self._waited = math.inf, 0

    @property
    def best_sweep(self) -> int | None:
        return None if self.best_row is None else int(self.best_row["sweep"])

    def __call__(self, progress: Progress) -> bool:
        loss = self._loss(progress.row)
        if self.best_row is None or loss < self._loss(self.best_row):
            self.best_row = dict(progress.row)
            state = progress.state
            self._parameters = {name: getattr(state, name) for name in _PARAMETERS}
        if loss < self._reference - self.min_delta:
            self._reference, self._waited = loss, 0
        else:
            self._waited += 1
        return self._waited >= self.patience

    def finish(self, progress: Progress) -> Progress:
        if self.best_row is None or not self.restore_best:
            return progress
        return Progress(int(self.best_row["sweep"]), dict(self.best_row), replace(progress.state, **self._parameters))

    def state_dict(self) -> dict[str, Any]:
        return {
            "monitor": self.monitor,
            "best_row": self.best_row,
            "parameters": dict(self._parameters),
            "reference": self._reference,
            "waited": self._waited,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["monitor"] != self.monitor:
            raise ValueError(
                f"monitor={self.monitor!r}, but the run that is continued has watched {state['monitor']!r}."
            )
        self.best_row, self._parameters = state["best_row"], state["parameters"]
        self._reference, self._waited = state["reference"], state["waited"]

    def _loss(self, row: dict[str, float]) -> float:
        """The monitored number, such that less is better."""
        if self.monitor not in row:
            hint = " It is recorded with validation=(X, y)." if self.monitor.startswith("validation_") else ""
            raise ValueError(f"monitor={self.monitor!r} is not recorded.{hint} What is: {', '.join(row)}.")
        value = row[self.monitor]
        if math.isnan(value):
            return math.inf
        return -value if self.monitor.endswith("accuracy") else value


_PARAMETERS = ("weights", "biases", "head_weight", "head_bias")


class CSVLog:
    """Write every sweep into a CSV file as it happens: a header, then a row a sweep, as `History.to_csv` writes them.

    A new run begins the file anew; a continued one keeps the rows up to where it continues.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.begin()

    def begin(self) -> None:
        self._begun = False

    def __call__(self, progress: Progress) -> None:
        if not self._begun:
            self._cut(progress.sweep, list(progress.row))
            self._begun = True
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow(progress.row.values())

    def _cut(self, sweep: int, columns: list[str]) -> None:
        """Leave the header and the rows before a sweep: a run that was killed may have got further than it saved."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = (",".join(columns) + "\r\n").encode()
        if sweep == 1 or not self.path.exists():
            self.path.write_bytes(header)
            return
        with self.path.open("r+b") as file:
            if file.readline() != header:
                raise ValueError(
                    f"{self.path} cannot be continued: it does not begin with the columns of this run. "
                    "Move it away, or log to another file."
                )
            place, end = columns.index("sweep"), file.tell()
            for line in file:
                cells = line.split(b",")
                if not (line.endswith(b"\n") and cells[place].isdigit() and int(cells[place]) < sweep):
                    break
                end += len(line)
            file.truncate(end)


class TensorBoardLog:
    """Write every column of the history for TensorBoard: `tensorboard --logdir DIRECTORY`.

    Needs tensorboard: pip install 'lysep[tensorboard]'. A continued run takes the place of what was logged past it.
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoardLog needs tensorboard: pip install 'lysep[tensorboard]'") from error
        self.directory = Path(directory)
        self._open: Callable[..., Any] = SummaryWriter
        self._writer: Any = None

    def begin(self) -> None:
        if self._writer is not None:  # of a run that ended with an exception
            self._writer.close()
        self._writer = None

    def __call__(self, progress: Progress) -> None:
        if self._writer is None:
            self._writer = self._open(str(self.directory), purge_step=progress.sweep, flush_secs=10)
        for name, value in progress.row.items():
            if name != "sweep":
                self._writer.add_scalar(name, value, progress.sweep)

    def finish(self, progress: Progress) -> None:
        self.begin()


class Callbacks:
    """The callbacks of one run."""

    def __init__(self, callbacks: Any) -> None:
        if not isinstance(callbacks, list | tuple):
            raise ValueError(f"callbacks={callbacks!r} must be a list of functions.")
        for callback in callbacks:
            if not callable(callback):
                raise ValueError(f"callbacks holds {callback!r}, which cannot be called.")
        self._callbacks: tuple[Any, ...] = tuple(callbacks)
        self._remembering = [c for c in callbacks if hasattr(c, "state_dict") and hasattr(c, "load_state_dict")]

    def begin(self) -> None:
        for callback in self._callbacks:
            if hasattr(callback, "begin"):
                callback.begin()

    def __call__(self, progress: Progress) -> bool:
        """Whether one says stop; every one is called, whatever another says or does to its row."""
        answers = [callback(replace(progress, row=dict(progress.row))) for callback in self._callbacks]
        return any(_says_stop(answer) for answer in answers)

    def finish(self, progress: Progress) -> Progress:
        """What is kept of the run: the last sweep, unless a callback chooses another."""
        for callback in self._callbacks:
            chosen = callback.finish(progress) if hasattr(callback, "finish") else None
            progress = chosen if isinstance(chosen, Progress) else progress
        return progress

    def __repr__(self) -> str:
        """Those that remember something."""
        return ", ".join(type(callback).__name__ for callback in self._remembering) or "none"

    def state_dicts(self) -> list[dict[str, Any]]:
        """What they remember now; copies, so that it does not change with what goes on."""
        return [copy.deepcopy(callback.state_dict()) for callback in self._remembering]

    def load_state_dicts(self, states: Sequence[dict[str, Any]]) -> None:
        for callback, state in zip(self._remembering, states, strict=True):
            callback.load_state_dict(state)


def _says_stop(answer: Any) -> bool:
    """True, as Python, NumPy or PyTorch writes it. Anything else that a callback returns means nothing."""
    if isinstance(answer, Tensor) and answer.dtype == torch.bool and answer.numel() == 1:
        return bool(answer)
    return isinstance(answer, bool | np.bool_) and bool(answer)
