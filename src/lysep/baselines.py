"""The same networks trained on cross-entropy by PyTorch's own optimizers, to compare with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lysep.history import History
from lysep.progress import ProgressBar

COLUMNS = ("sweep", "cross_entropy", "accuracy", "seconds")

Closure = Callable[[], Tensor]


class Stepper:
    """One or more PyTorch optimizers that step together: what Muon, which takes matrices only, needs for the biases."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    def step(self, closure: Closure) -> None:
        if len(self.optimizers) == 1:
            self.optimizers[0].step(closure)  # type: ignore[arg-type]  # the stubs want a float, every one takes a tensor
            return
        closure()
        for optimizer in self.optimizers:
            optimizer.step()


MakeStepper = Callable[[Iterable[nn.Parameter], float], Stepper]


def _lbfgs(parameters: Iterable[nn.Parameter], lr: float) -> Stepper:
    # Twenty iterations a step are PyTorch's default. Its tolerances would end a step early and the next one would
    # begin with the same; without them the line search alone decides.
    return Stepper(
        torch.optim.LBFGS(
            parameters, lr, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=0.0, tolerance_change=0.0
        )
    )


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
    "lbfgs": _lbfgs,
    "muon": _muon,
}
"""By name, as a function of parameters and learning rate. A step of "lbfgs" is up to twenty iterations."""


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
    samples = batches(X, y, batch_size, refresh_every, seed)
    started = time.perf_counter()
    with ProgressBar(steps, progress, "step", time_limit=time_limit) as bar:
        for step in range(1, steps + 1):
            loss, accuracy = _step(model, stepper, *next(samples))
            row = {"sweep": step, "cross_entropy": loss, "accuracy": accuracy, "seconds": time.perf_counter() - started}
            history.append(row)
            bar.show(row)
            answers = [callback(Step(step, row, model)) for callback in callbacks]
            if any(answer is True for answer in answers) or not abs(loss) < float("inf"):
                break
            if time_limit is not None and row["seconds"] >= time_limit:
                break
    return history


def _step(model: nn.Module, stepper: Stepper, X: Tensor, y: Tensor) -> tuple[float, float]:
    """One step; cross-entropy and accuracy where it began."""
    first: list[Tensor] = []

    def closure() -> Tensor:
        model.zero_grad()
        logits = model(X)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        if not first:  # L-BFGS evaluates more than once a step
            first.extend((loss.detach(), (logits.argmax(1) == y).double().mean()))
        return loss

    stepper.step(closure)
    return float(first[0]), float(first[1])


def batches(X: Tensor, y: Tensor, size: int | None, refresh_every: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The samples of every step; drawn as `lysep.fit` draws them, so that the same seed means the same batches."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    while True:
        chosen = None if size is None else torch.randperm(len(X), generator=generator, device="cpu")[:size]
        batch = (X, y) if chosen is None else (X[chosen.to(X.device)], y[chosen.to(y.device)])
        for _ in range(refresh_every):
            yield batch
