"""The same networks trained on cross-entropy by PyTorch's own optimizers, to compare with."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lysep.history import History
from lysep.progress import ProgressBar

COLUMNS = ("sweep", "cross_entropy", "accuracy", "seconds")

Closure = Callable[[], Tensor]

_LINE_SEARCH = 25  # evaluations at most, PyTorch's own default


class Stepper:
    """One or more PyTorch optimizers that step together: what Muon, which takes matrices only, needs for the biases.

    `revisits`: whether a step begins by evaluating again what the step before it evaluated.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer, revisits: bool = False) -> None:
        self.optimizers, self.revisits = optimizers, revisits

    def step(self, closure: Closure) -> None:
        if len(self.optimizers) == 1:
            self.optimizers[0].step(closure)  # type: ignore[arg-type]  # the stubs want a float, every one takes a tensor
            return
        closure()
        for optimizer in self.optimizers:
            optimizer.step()


MakeStepper = Callable[[Iterable[nn.Parameter], float], Stepper]


def _lbfgs(parameters: Iterable[nn.Parameter], lr: float, max_iter: int, max_eval: int) -> Stepper:
    # PyTorch's tolerances would end a step early and the next one would begin with the same; without them the line
    # search alone decides.
    lbfgs = torch.optim.LBFGS(
        parameters,
        lr,
        max_iter=max_iter,
        max_eval=max_eval,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=0.0,
        tolerance_change=0.0,
    )
    return Stepper(lbfgs, revisits=True)


def _muon(parameters: Iterable[nn.Parameter], lr: float) -> Stepper:
    """Muon for the matrices, with the update scaled as Adam's is, so that one learning rate serves both."""
    given = list(parameters)
    matrices = [p for p in given if p.dim() == 2]
    rest = [p for p in given if p.dim() != 2]
    muon = torch.optim.Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return Stepper(muon, torch.optim.Adam(rest, lr=lr, fused=True)) if rest else Stepper(muon)


# Fused updates cost a tenth less per step than PyTorch's default on these small networks.
OPTIMIZERS: dict[str, MakeStepper] = {
    "gd": lambda parameters, lr: Stepper(torch.optim.SGD(parameters, lr=lr, fused=True)),
    "momentum": lambda parameters, lr: Stepper(
        torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True, fused=True)
    ),
    "adam": lambda parameters, lr: Stepper(torch.optim.Adam(parameters, lr=lr, fused=True)),
    "lbfgs": lambda parameters, lr: _lbfgs(parameters, lr, max_iter=20, max_eval=25),  # PyTorch's defaults
    "lbfgs-single": lambda parameters, lr: _lbfgs(parameters, lr, max_iter=1, max_eval=1 + _LINE_SEARCH),
    "muon": _muon,
}
"""By name, as a function of parameters and learning rate. A step of "lbfgs" is up to twenty iterations.

One of "lbfgs-single" is a single iteration, so that a run can be looked at after each; it costs no more than before.
"""


@dataclass(frozen=True)
class Step:
    """What a callback gets after every step; `row` is scored before it."""

    sweep: int
    row: dict[str, float]
    model: nn.Module


def minimize_cross_entropy(
    model: nn.Module,
    X: Tensor,
    y: Tensor,
    optimizer: str,
    lr: float,
    steps: int,
    *,
    batch_size: int | None = None,
    refresh_every: int = 200,
    callbacks: Sequence[Callable[[Step], object]] = (),
    time_limit: float | None = None,
    progress: bool = False,
    seed: int = 0,
) -> History:
    """Steps of a PyTorch optimizer on all samples, or on a random subset replaced every `refresh_every` steps.

    A row holds the loss before its step: scoring it costs nothing extra. A callback that returns True ends the run,
    and so does a loss that is not finite.

    >>> from lysep.problems import circle, fnn
    >>> data, model = circle(train=100), fnn(3, 10)
    >>> history = minimize_cross_entropy(model, data.X_train, data.y_train, "adam", 0.01, steps=5)
    >>> len(history)
    5
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer={optimizer!r} is unknown. Use one of {', '.join(map(repr, OPTIMIZERS))}.")
    history, stepper = History(COLUMNS), OPTIMIZERS[optimizer](model.parameters(), lr)
    samples, objective = batches(X, y, batch_size, refresh_every, seed), _Objective(model, stepper.revisits)
    started = time.perf_counter()
    with ProgressBar(steps, progress, "step", time_limit=time_limit) as bar:
        for step in range(1, steps + 1):
            loss, accuracy = objective.step(stepper, next(samples))
            row = {"sweep": step, "cross_entropy": loss, "accuracy": accuracy, "seconds": time.perf_counter() - started}
            history.append(row)
            bar.show(row)
            answers = [callback(Step(step, row, model)) for callback in callbacks]
            if any(answer is True for answer in answers) or not abs(loss) < float("inf"):
                break
            if time_limit is not None and row["seconds"] >= time_limit:
                break
    return history


class _Evaluation(NamedTuple):
    parameters: list[Tensor]
    gradients: list[Tensor | None]
    loss: Tensor
    accuracy: Tensor


class _Objective:
    """Loss and gradient of the model on the batch of the moment: the closure that optimizers call.

    With `remember`, evaluations are kept for a while and not made again at the same point: L-BFGS begins a step where
    its last line search ended, and pays for that once.
    """

    def __init__(self, model: nn.Module, remember: bool) -> None:
        self._model, self._parameters = model, list(model.parameters())
        self._known: deque[_Evaluation] = deque(maxlen=1 + _LINE_SEARCH if remember else 0)
        self._batch: tuple[Tensor, Tensor] | None = None
        self._first: _Evaluation | None = None

    def step(self, stepper: Stepper, batch: tuple[Tensor, Tensor]) -> tuple[float, float]:
        """One step; cross-entropy and accuracy where it began."""
        if batch is not self._batch:
            self._known.clear()
        self._batch, self._first = batch, None
        stepper.step(self)
        assert self._first is not None  # every optimizer evaluates before it moves
        return float(self._first.loss), float(self._first.accuracy)

    def __call__(self) -> Tensor:
        found = next((known for known in reversed(self._known) if self._is_at(known.parameters)), None)
        if found is None:
            found = self._evaluate()
        else:
            for parameter, gradient in zip(self._parameters, found.gradients, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
        self._first = self._first or found
        return found.loss

    def _is_at(self, values: list[Tensor]) -> bool:
        return all(torch.equal(p, value) for p, value in zip(self._parameters, values, strict=True))

    def _evaluate(self) -> _Evaluation:
        assert self._batch is not None
        X, y = self._batch
        self._model.zero_grad()
        logits = self._model(X)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        accuracy = (logits.argmax(1) == y).double().mean()
        if self._known.maxlen == 0:
            return _Evaluation([], [], loss.detach(), accuracy)
        values = [p.detach().clone() for p in self._parameters]
        gradients = [None if p.grad is None else p.grad.clone() for p in self._parameters]
        self._known.append(_Evaluation(values, gradients, loss.detach(), accuracy))
        return self._known[-1]


def batches(X: Tensor, y: Tensor, size: int | None, refresh_every: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples of every step; drawn as `lysep.fit` draws them, so that the same seed means the same batches."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    while True:
        chosen = None if size is None else torch.randperm(len(X), generator=generator, device="cpu")[:size]
        batch = (X, y) if chosen is None else (X[chosen.to(X.device)], y[chosen.to(y.device)])
        for _ in range(refresh_every):
            yield batch
