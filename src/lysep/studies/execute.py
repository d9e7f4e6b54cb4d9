"""One specification to one run: the data, the network, the training, and the scores."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor, nn

import lysep
from lysep import machine
from lysep.baselines import batches, minimize_cross_entropy
from lysep.problems import Split, circle, cnn, digits, fnn, interface, mnist
from lysep.scoring import score
from lysep.studies.runs import Outcome, Run, Specification, Thinned

ITERATIONS_PER_STEP = {"lbfgs": 20}
"""How many iterations a step of an optimizer counts as; one where it is not named."""

COLUMNS = ("sweep", "cross_entropy", "accuracy", "seconds")
LYSEP_COLUMNS = (*COLUMNS, "objective", "bound", "rejected_updates", "line_search_evaluations", "skipped_updates")

Watch = Callable[[int], None]
"""Called with the number of iterations done. What it raises ends the run, which is then not recorded."""


class RunInterruptedError(Exception):
    """Raised by a `Watch` to end a run that is not to be recorded."""


class _Event(Protocol):
    @property
    def row(self) -> Mapping[str, float]: ...


class _Recorder:
    """A callback of both training loops: counts iterations, keeps the rows, tells the watch."""

    def __init__(self, specification: Specification, watch: Watch) -> None:
        method = specification["method"]
        self._per_step, self._watch = ITERATIONS_PER_STEP.get(method, 1), watch
        self.history = Thinned(LYSEP_COLUMNS if method == "paper" else COLUMNS)
        self.stands_still = False

    @property
    def sweeps(self) -> int:
        return 0 if self.history.last is None else int(self.history.last["sweep"])

    def __call__(self, event: _Event) -> bool:
        row = {**event.row, "sweep": event.row["sweep"] * self._per_step}
        before = self.history.last
        # Only a line search that finds nothing leaves the loss as it was to the last bit.
        self.stands_still = before is not None and before["cross_entropy"] == row["cross_entropy"]
        self.history.append(row)
        self._watch(self.sweeps)
        return False


def execute(specification: Specification, watch: Watch, device: str = "cpu") -> Run:
    """Train and score as specified. What goes wrong in training is recorded as a failed run."""
    started = time.perf_counter()
    data, model = load(specification), network(specification).to(device)
    recorder = _Recorder(specification, watch)
    try:
        ended = _train(specification, model, data, recorder, device)
        scores = _scores(specification, model, data, recorder.sweeps, device)
        predictions = _predictions(model, data, device)
        outcome = Outcome("ok", ended, recorder.sweeps, time.perf_counter() - started, scores, predictions)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        outcome = Outcome("failed", message, recorder.sweeps, time.perf_counter() - started)
    history = recorder.history
    return Run(specification, machine.describe() | {"device": _name(device)}, history.columns, history.rows, outcome)


def load(specification: Specification) -> Split:
    """The data of a specification; `data_seed` draws them, where they are drawn."""
    problem, seed = specification["problem"], specification["data_seed"]
    if problem not in _PROBLEMS:
        raise ValueError(f"problem={problem!r} is unknown. Use one of {', '.join(map(repr, _PROBLEMS))}.")
    return _PROBLEMS[problem](specification.get("time"), None if problem == "mnist" else seed)


# Every worker loads what it needs once.
_PROBLEMS: dict[str, Callable[..., Split]] = {
    "circle": lru_cache(lambda time, seed: circle(seed)),
    "interface": lru_cache(interface),
    "digits": lru_cache(lambda time, seed: digits(seed)),
    "mnist": lru_cache(lambda time, seed: mnist()),
}


def network(specification: Specification) -> nn.Module:
    """The network of a specification, as it starts."""
    first, second = specification["network"]
    start, seed = specification["start"], specification["seed"]
    if specification["problem"] in ("circle", "interface"):
        return fnn(first, second, start=start, seed=seed)
    image = (1, 8, 8) if specification["problem"] == "digits" else (1, 28, 28)
    return cnn(first, second, image=image, start=start, seed=seed)


def _train(s: Specification, model: nn.Module, data: Split, recorder: _Recorder, device: str) -> str:
    """Train the model in place. Returns why it ended, for people."""
    if s["method"] == "paper":
        result = lysep.fit(
            model,
            data.X_train,
            data.y_train,
            method="paper",
            sweeps=s["sweeps"],
            batch_size=s["batch_size"],
            refresh_every=s["refresh_every"],
            callbacks=[recorder],
            seed=s["seed"],
        )
        if result.status is lysep.Status.NON_FINITE:
            raise ArithmeticError(f"{result.status.message} (sweep {recorder.sweeps})")
        return result.status.message
    per_step = ITERATIONS_PER_STEP.get(s["method"], 1)

    def stalled(_: object = None) -> bool:
        return s["method"] == "lbfgs" and s["batch_size"] is None and recorder.stands_still

    minimize_cross_entropy(
        model,
        *_training_data(s, model, data, device),
        s["method"],
        s["learning_rate"],
        max(1, s["sweeps"] // per_step),
        batch_size=s["batch_size"],
        refresh_every=max(1, s["refresh_every"] // per_step),
        callbacks=[recorder, stalled],
        seed=s["seed"],
    )
    if stalled():
        return lysep.Status.STALLED.message
    if recorder.sweeps < s["sweeps"] // per_step * per_step:
        raise ArithmeticError(f"the loss is not finite (iteration {recorder.sweeps})")
    return lysep.Status.COMPLETED.message


def _training_data(s: Specification, model: nn.Module, data: Split, device: str) -> tuple[Tensor, Tensor]:
    dtype = next(model.parameters()).dtype
    return data.X_train.to(device, dtype), data.y_train.to(device)


def _scores(s: Specification, model: nn.Module, data: Split, sweeps: int, device: str) -> dict[str, dict[str, float]]:
    """By the one scorer, whoever trained. The last batch is what the model was trained on last."""
    X, y = _training_data(s, model, data, device)
    sets = {"train": (X, y), "test": (data.X_test.to(X), data.y_test.to(device))}
    if s["batch_size"] is not None:
        drawn = batches(X, y, s["batch_size"], 1, s["seed"])
        sets["last_batch"] = next(islice(drawn, math.ceil(sweeps / s["refresh_every"]) - 1, None))
    scores = {name: score(model, *samples)._asdict() for name, samples in sets.items()}
    for name, values in scores.items():
        if not all(map(math.isfinite, values.values())):
            raise ArithmeticError(f"the loss on {name} is not finite at the end")
    return scores


@torch.no_grad()
def _predictions(model: nn.Module, data: Split, device: str) -> str:
    dtype = next(model.parameters()).dtype
    classes = [model(X.to(device, dtype)).argmax(1) for X in data.X_test.split(10_000)]
    return "".join(str(int(c)) for c in torch.cat(classes))


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
