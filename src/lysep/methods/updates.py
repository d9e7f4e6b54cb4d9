"""The block updates that methods are composed of. Each is accepted only if it does not raise the objective.

The terms of S that a block of link l touches all carry a common factor ω, a product of up to L−1 squared norms that
reaches 1e19 at L = 20. Every comparison here is made after dividing by it: what remains is of the size of the data,
and step lengths do not depend on the depth. Gradients are half of the paper's (no factor 2) and divided alike.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lysep import head
from lysep.methods.base import SweepLog
from lysep.objective import Iterate
from lysep.sums import per_sample

# -- the terms that one block touches --------------------------------------------------------------------------------


def head_terms(it: Iterate, ridge: float) -> float:
    """‖R‖² + λ ‖W_L‖², above eq. (3.15)."""
    return it.squares[-1] + ridge * it.norms[-1]


def aux_terms(it: Iterate, l: int) -> float:
    """The part of S that c_l touches, over ω_{l+1}: ‖gap_{l+1}‖² (‖R‖² below the head) + ‖W_{l+1}‖² ‖gap_l‖²."""
    return it.squares[l + 1] + it.norms[l + 1] * it.squares[l]


def link_terms(it: Iterate, l: int, ridge: float) -> float:
    """The part of S that W_l and b_l touch, over ω_l: eq. (3.9)."""
    return it.squares[l] + ridge * it.norms[l]


# -- gradients -------------------------------------------------------------------------------------------------------


def head_gradient(it: Iterate, ridge: float) -> tuple[Tensor, Tensor | None]:
    """½ ∇S in W_L, eq. (3.15), and in the head's bias, which the ridge does not touch."""
    link, W = it.network.layers[-1].link, it.weights[-1]
    slopes = _residual_slopes(it)
    if it.sample_weight is not None:
        slopes = per_sample(it.sample_weight, slopes)
    grad_weight = link.correlate(it.features[-1], slopes) + ridge * link.metric.apply(W)
    grad_bias = None if it.biases[-1] is None else slopes.sum(0, dtype=torch.float64)
    return grad_weight, grad_bias


def aux_gradient(it: Iterate, l: int) -> Tensor:
    """½ ∇S in c_l over ω_{l+1}: eq. (3.12), and eq. (3.14) below the head.

    For every sample by itself, and so not times its weight: a sample of weight two moves like two of weight one.
    """
    above = it.gaps[l + 1] if l + 1 < len(it.gaps) else _residual_slopes(it)
    layer = it.network.layers[l + 1]
    pulled = layer.link.pull_back(it.weights[l + 1], above)
    slope = layer.activation.derivative(it.aux[l], it.active[l + 1])
    return torch.addcmul(-it.norms[l + 1] * it.gaps[l], pulled, slope)


def _residual_slopes(it: Iterate) -> Tensor:
    """(P − A) diag(R): half the gradient of ‖R‖² in the logits."""
    return head.errors(it.log_probs, it.labels) * it.residuals[:, None]


# -- gradient steps --------------------------------------------------------------------------------------------------


def head_curvature(it: Iterate, ridge: float) -> float:
    """A bound on the curvature of ½S along any direction of the head, from the samples as they are.

    ½ ∇²‖R‖² = Σ_n (e_n e_nᵀ + r_n H_n) ⊗ v_n v_nᵀ with errors e_n and the softmax Hessian H_n, ‖H_n‖ ≤ ½; the norm of
    a sum is at most the sum of the norms. As the fit improves it falls, and the steps grow by themselves.
    """
    squares = it.features[-1].double().square().sum(1) + (0.0 if it.biases[-1] is None else 1.0)
    curvatures = head.errors(it.log_probs, it.labels).double().square().sum(1) + 0.5 * it.residuals.double()
    if it.sample_weight is not None:
        curvatures = curvatures * it.sample_weight
    return float(curvatures @ squares) + ridge * it.network.layers[-1].link.metric.largest


def move_head(it: Iterate, gradient: tuple[Tensor, Tensor | None], step: float) -> Iterate:
    W, b = it.weights[-1], it.biases[-1]
    grad_weight, grad_bias = gradient
    bias = None if b is None or grad_bias is None else (b - step * grad_bias).to(b.dtype)
    return it.with_parameters(len(it.weights) - 1, (W - step * grad_weight).to(W.dtype), bias)


def move_aux(it: Iterate, l: int, gradient: Tensor, step: float) -> Iterate:
    return it.with_aux(l, torch.sub(it.aux[l], gradient, alpha=step))


# -- exact solutions -------------------------------------------------------------------------------------------------


def solve_weight(it: Iterate, l: int, ridge: float, log: SweepLog) -> Iterate:
    """W_l (or the shared kernel) by ridge least squares, eqs. (3.10) and (4.6)."""
    try:
        link = it.network.layers[l].link
        weight = link.solve(it.features[l], it.gaps[l], ridge, it.weights[l], it.sample_weight)
    except torch.linalg.LinAlgError:  # features so large that their products overflow
        log.rejected_updates += 1
        return it
    return keep_if_lower(it, it.with_parameters(l, weight, it.biases[l]), lambda i: link_terms(i, l, ridge), log)


def solve_bias(it: Iterate, l: int, ridge: float, log: SweepLog) -> Iterate:
    """b_l, the mean of c_l − W_l V_l, eq. (3.11): the mean gap, taken off."""
    bias = it.biases[l]
    if bias is None:
        return it
    better = bias - it.network.layers[l].link.mean(it.gaps[l], it.sample_weight)
    return keep_if_lower(it, it.with_parameters(l, it.weights[l], better), lambda i: link_terms(i, l, ridge), log)


def keep_if_lower(it: Iterate, candidate: Iterate, terms: Callable[[Iterate], float], log: SweepLog) -> Iterate:
    """The candidate, unless its terms are higher, or not numbers at all."""
    if terms(candidate) <= terms(it):
        return candidate
    log.rejected_updates += 1
    return it
