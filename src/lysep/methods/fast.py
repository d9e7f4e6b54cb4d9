"""Layer separation by local gain: what never rises is the cross-entropy itself. docs/fast.md derives every step.

At parameters whose auxiliary variables are consistent (a forward pass), write the loss as Σ ρ_n², ρ_n = sqrt(r_n), and
let δ_{l,n} be the gradient of ρ_n in c_{l,n}: one reverse pass. A sweep

1. separates: every layer solves a least-squares problem of its own, `separation.separate`;
2. couples: how far each group of layers goes along its solution and along its last step is a least-squares problem in a
   few unknowns, `coupling.Coupling`;
3. is accepted only if the cross-entropy falls; otherwise the coupling is damped more, and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lysep.data import Batch
from lysep.methods.averages import Averages, averages_in
from lysep.methods.base import Memory, Method, SweepLog
from lysep.methods.coupling import Coupling
from lysep.methods.separation import separate
from lysep.methods.start import measured_start
from lysep.objective import Point
from lysep.state import State

_MAX_TRIALS = 15  # the damping grows by 4 each time: 4^15 = 1e9 is where rounding begins
_FIRST_DAMPING = 1.0  # of new samples also the least: with less, every batch would be fitted to the end
_LEAST_DAMPING = 1e-6
_MOST_DAMPING = 10.0  # beyond it, only a rejection damps more: steps that samples disagree on shall be small, not stop
_DAMPING, _EXPECTED, _GAINED, _REACHED = "damping", "expected", "gained", "reached"  # remembered, beside the last step


@dataclass(frozen=True)
class Fast(Method[Point]):
    """Layer separation by local gain, nothing to tune.

    Parameters
    ----------
    start
        "auto": hidden layers whose features have collapsed (hardly vary from sample to sample) or are saturated are
        rescaled from the data, once, before the first sweep, and the result says so; a model that has learned something
        is left as it is. "measured": all hidden layers are rescaled. "given": none is.
    """

    start: Literal["auto", "measured", "given"] = "auto"
    refresh_every: ClassVar[int] = 1  # within a few sweeps a batch is learnt by heart

    def __post_init__(self) -> None:
        if self.start not in ("auto", "measured", "given"):
            raise ValueError(f"start={self.start!r} is unknown. Use 'auto', 'measured' or 'given'.")

    def evaluate(self, state: State) -> Point:
        batch = Batch(state.inputs, state.labels, state.sample_weight)
        return Point(state.network, [*state.weights, state.head_weight], [*state.biases, state.head_bias], batch)

    def renew(self, iterate: Point, batch: Batch) -> Point:
        return Point(iterate.network, iterate.weights, iterate.biases, batch)

    def objective(self, iterate: Point) -> float:
        """Σ r_n, N times the cross-entropy."""
        return iterate.total

    def begin(self, iterate: Point) -> tuple[Point, Memory]:
        if self.start != "given":
            iterate = measured_start(iterate, always=self.start == "measured")
        return iterate, {_DAMPING: _FIRST_DAMPING}

    def remarks(self, given: Point, begun: Point) -> tuple[str, ...]:
        hidden = len(given.aux)
        rescaled = sum(a is not b for a, b in zip(given.weights, begun.weights, strict=True))
        if not rescaled:
            return ()
        why = "as asked" if self.start == "measured" else "features had collapsed or were saturated"
        return (f"start: {rescaled} of {hidden} hidden layers rescaled from the data ({why})",)

    def sweep(self, iterate: Point, memory: Memory) -> tuple[Point, Memory, SweepLog]:
        log = SweepLog()
        seen = _REACHED in memory and float(memory[_REACHED]) == iterate.total / iterate.samples
        damping = float(memory[_DAMPING]) if seen else max(float(memory[_DAMPING]), _FIRST_DAMPING)
        averages = Averages({} if seen else memory)
        try:
            with torch.inference_mode():  # cheaper calls, for tensors that do not leave the sweep
                last = _last_steps(memory, len(iterate.weights))
                coupling = Coupling(separate(iterate, damping, averages), last)
        except torch.linalg.LinAlgError:  # features or gains so large that their products overflow
            return iterate, memory, log
        if _EXPECTED in memory:
            gained = float(memory[_GAINED]) if seen else coupling.gained() / iterate.samples
            damping = _adapted(damping, gained / float(memory[_EXPECTED]), seen)
        for _ in range(_MAX_TRIALS):
            steps, expected = coupling.solve(damping)
            if not expected > 0.0:
                break
            log.line_search_evaluations += 1
            candidate = moved(iterate, steps)
            if candidate.total < iterate.total:
                of_batches = averages_in(memory) if seen else averages.memory()
                return candidate, {**_remembered(iterate, candidate, damping, expected, steps), **of_batches}, log
            log.rejected_updates += 1
            damping *= 4.0
        return iterate, memory, log


def moved(point: Point, steps: list[Tensor]) -> Point:
    """The parameters after a step; every layer's is a matrix, outputs × (inputs and, for a bias, one more)."""
    weights, biases = [], []
    for W, b, step in zip(point.weights, point.biases, steps, strict=True):
        columns = W[0].numel()
        weights.append((W + step[:, :columns].reshape(W.shape)).to(W.dtype))
        biases.append(None if b is None else (b + step[:, columns]).to(b.dtype))
    return Point(point.network, weights, biases, point.batch)


def _adapted(damping: float, kept: float, seen: bool) -> float:
    """Levenberg and Marquardt: less damping where the loss fell about as much as the linearized problem promised.

    New samples keep less of it, and how much is chance: there it is enough to gain at all, and changes are small.
    """
    enough, little, less, more = (0.5, 0.15, 0.4, 4.0) if seen else (0.1, -0.1, 0.75, 1.5)
    if kept > enough:
        return max(less * damping, _LEAST_DAMPING if seen else _FIRST_DAMPING)
    return max(damping, min(more * damping, _MOST_DAMPING)) if kept < little else damping


def _remembered(before: Point, after: Point, damping: float, expected: float, steps: list[Tensor]) -> Memory:
    samples = before.samples
    return {
        _DAMPING: damping,
        _EXPECTED: expected / samples,
        _GAINED: (before.total - after.total) / samples,
        _REACHED: after.total / samples,
        **{f"step.{l}": step for l, step in enumerate(steps)},
    }


def _last_steps(memory: Memory, layers: int) -> list[Tensor] | None:
    steps = [memory.get(f"step.{l}") for l in range(layers)]
    return [step for step in steps if isinstance(step, Tensor)] or None
