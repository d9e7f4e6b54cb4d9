"""The same networks trained on cross-entropy by PyTorch's own optimizers, to compare with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from lysep.history import History

COLUMNS = ("sweep", "cross_entropy", "accuracy", "seconds")


def minimize_cross_entropy(
    model: nn.Module,
    X: Tensor,
    y: Tensor,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    steps: int,
    *,
    time_limit: float | None = None,
    progress: bool = False,
) -> History:
    """Full-batch steps of a PyTorch optimizer. A row holds the loss before its step: scoring it costs nothing extra.

    >>> import torch
    >>> from lysep.problems import circle, fnn
    >>> data, model = circle(train=100), fnn(3, 10)
    >>> adam = lambda parameters: torch.optim.Adam(parameters, lr=0.01)
    >>> history = minimize_cross_entropy(model, data.X_train, data.y_train, adam, steps=5)
    >>> len(history)
    5
    """
    history, stepper = History(COLUMNS), optimizer(model.parameters())
    started = time.perf_counter()
    first: list[Tensor] = []

    def closure() -> Tensor:
        stepper.zero_grad()
        logits = model(X)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        if not first:  # L-BFGS evaluates more than once a step
            first.extend((loss.detach(), (logits.argmax(1) == y).double().mean()))
        return loss

    with tqdm(total=steps, disable=not progress, unit="step") as bar:
        for step in range(1, steps + 1):
            first.clear()
            stepper.step(closure)  # type: ignore[arg-type]  # the stubs want a float, every optimizer takes a tensor
            seconds = time.perf_counter() - started
            loss, accuracy = (float(value) for value in first)
            history.append({"sweep": step, "cross_entropy": loss, "accuracy": accuracy, "seconds": seconds})
            bar.set_postfix(loss=f"{loss:.3g}", accuracy=f"{accuracy:.2%}", refresh=False)
            bar.update()
            if time_limit is not None and seconds >= time_limit:
                break
    return history
