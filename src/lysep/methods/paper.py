"""Algorithms 1 and 2 of the paper.

They are one algorithm: Algorithm 2 goes through the dense links and then through the convolutions, last to first, and
what differs between them (map, adjoint, norm, least squares) is the link's own business.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

import torch
from torch import Tensor

from lysep.activations import Bounds
from lysep.methods import lipschitz, updates
from lysep.methods.base import Memory, Method, SweepLog
from lysep.objective import Iterate
from lysep.sums import squared_norm


@dataclass(frozen=True)
class Paper(Method[Iterate]):
    """Layer separation as printed: alternating minimization of S, every block in the printed order.

    Parameters
    ----------
    step
        "backtracking": try a step, shrink it until S does not rise. "lipschitz": the step 1/C with the constants C of
        Lemma 3.3, which needs no trial, but bounded activations (Tanh, Sigmoid) and many more sweeps.
    start
        The first step tried, in units of one over a bound of the block's curvature: ‖W_{l+1}‖² for c_l, see
        `updates.head_curvature` for the head. In these units the right step is of order one at any depth.
    shrink
        The factor between one trial and the next.
    max_trials
        After so many trials the block stays as it was, and the update counts as rejected.
    """

    step: Literal["backtracking", "lipschitz"] = "backtracking"
    start: float = 1.6
    shrink: float = 0.5
    max_trials: int = 20

    def __post_init__(self) -> None:
        if self.step not in ("backtracking", "lipschitz"):
            raise ValueError(f"step={self.step!r} is unknown. Use 'backtracking' or 'lipschitz'.")
        if not (_is_number(self.start) and 0.0 < self.start < math.inf):
            raise ValueError(f"start={self.start!r} must be a positive number.")
        if not (_is_number(self.shrink) and 0.0 < self.shrink < 1.0):
            raise ValueError(f"shrink={self.shrink!r} must lie between 0 and 1.")
        if not (_is_number(self.max_trials) and isinstance(self.max_trials, Integral) and self.max_trials >= 1):
            raise ValueError(f"max_trials={self.max_trials!r} must be a positive integer.")

    def sweep(self, iterate: Iterate, memory: Memory) -> tuple[Iterate, Memory, SweepLog]:
        """One iteration k of Algorithm 1 (FNN) or 2 (CNN)."""
        log = SweepLog()
        ridges, floors = iterate.ridges, iterate.rounding_floors  # λ_l depends on links below l only: still untouched
        it = self._step_head(iterate, ridges[-1], log)
        for l in reversed(range(len(it.aux))):
            if updates.aux_terms(it, l) > floors[l + 1]:
                it = self._step_aux(it, l, log)
            else:
                log.skipped_updates += 1
            if updates.link_terms(it, l, ridges[l]) > floors[l]:
                it = updates.solve_weight(it, l, ridges[l], log)
                it = updates.solve_bias(it, l, ridges[l], log)
            else:
                log.skipped_updates += 2
        if it.objective <= iterate.objective:
            return it, memory, log
        # Every block fell, yet the sum rose in its last digit: S has reached its rounding.
        log.rejected_updates += 1
        return iterate, memory, log

    def _step_head(self, it: Iterate, ridge: float, log: SweepLog) -> Iterate:
        """W_L ← W_L − τ ∇S(W_L)."""
        gradient = updates.head_gradient(it, ridge)
        if self.step == "lipschitz":
            norm = 2.0 * math.sqrt(sum(squared_norm(g) for g in gradient if g is not None))
            curvature = 0.5 * lipschitz.head_constant(it, ridge, norm, _bounds(it, len(it.weights) - 1))
        else:
            curvature = updates.head_curvature(it, ridge)
        return self._descend(
            it,
            curvature,
            lambda step: updates.move_head(it, gradient, step),
            lambda i: updates.head_terms(i, ridge),
            log,
        )

    def _step_aux(self, it: Iterate, l: int, log: SweepLog) -> Iterate:
        """c_l ← c_l − τ ∇S(c_l)."""
        gradient: Tensor = updates.aux_gradient(it, l)
        if self.step == "lipschitz":
            bounds = _bounds(it, l + 1)
            top = l + 1 == len(it.aux)
            constant = lipschitz.top_constant(it, bounds) if top else lipschitz.hidden_constant(it, l, bounds)
            curvature = 0.5 * constant
        else:
            curvature = it.norms[l + 1]
        return self._descend(
            it,
            curvature,
            lambda step: updates.move_aux(it, l, gradient, step),
            lambda i: updates.aux_terms(i, l),
            log,
        )

    def _descend(
        self,
        it: Iterate,
        curvature: float,
        move: Callable[[float], Iterate],
        terms: Callable[[Iterate], float],
        log: SweepLog,
    ) -> Iterate:
        """A gradient step of a length that does not raise the block's terms; `curvature` is that of ½S."""
        if not curvature > 0.0:  # the block does not enter S: nothing to gain
            return it
        largest = torch.finfo(it.network.dtype).max  # vanishing weights ask for steps that the dtype cannot hold
        if self.step == "lipschitz":
            return updates.keep_if_lower(it, move(min(1.0 / curvature, largest)), terms, log)
        step, before = min(self.start / curvature, largest), terms(it)
        for _ in range(self.max_trials):
            log.line_search_evaluations += 1
            candidate = move(step)
            if terms(candidate) <= before:
                return candidate
            step *= self.shrink
        log.rejected_updates += 1
        return it


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _bounds(it: Iterate, l: int) -> Bounds:
    activation = it.network.layers[l].activation
    if activation.bounds is None:
        raise ValueError(
            f"step='lipschitz' needs activations with bounded value and derivatives (Tanh, Sigmoid), but "
            f"module {it.network.layers[l].place} follows {activation.name}. Use step='backtracking'."
        )
    return activation.bounds
