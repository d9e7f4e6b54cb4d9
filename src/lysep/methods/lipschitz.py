"""The Lipschitz constants of Lemma 3.3, for steps that need no trial.

They hold for activations with bounded σ, σ' and σ''. Every norm of a weight is the norm of the true linear map, K P,
and M, the paper's width, is the number of entries of an activated auxiliary variable per sample, so that the printed
constants serve convolutions too. A head bias, which the paper does not have, widens the range of the logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lysep.activations import Bounds
from lysep.objective import Iterate
from lysep.sums import squared_norm


def hidden_constant(it: Iterate, l: int, bounds: Bounds) -> float:
    """C_l for l ≤ L−2, over ω_{l+1}: eqs. (3.22) and (3.23)."""
    above = it.network.layers[l + 1].link
    norm, bias, c = it.norms[l + 1], it.biases[l + 1], it.aux[l + 1]
    B = c if bias is None else above.add_bias(c, -bias)
    pulled = math.sqrt(squared_norm(above.pull_back(it.weights[l + 1], B), _counted(it)))
    M0, M1, M2 = bounds.value, bounds.derivative, bounds.second
    entries = _count(it) * it.aux[l][0].numel()
    return 2.0 * (M1**2 * norm + M0 * M2 * math.sqrt(entries) * norm + M2 * pulled + norm)


def top_constant(it: Iterate, bounds: Bounds) -> float:
    """C_{L−1}, as printed at the end of the proof's second part."""
    samples, norm = _count(it), math.sqrt(it.norms[-1])
    M1, M2 = bounds.derivative, bounds.second
    inner = (M1**2 * norm + math.sqrt(2.0 * samples) * M2) * _largest_residual(it, bounds, 0.0)
    return 2.0 * norm * (inner + norm * (1.0 + 2.0 * math.sqrt(samples) * M1**2))


def head_constant(it: Iterate, ridge: float, gradient_norm: float, bounds: Bounds) -> float:
    """C_L, valid as far as the step that is taken with it reaches: at most ‖∇S‖ over the constant at W_L itself."""
    return _head_constant_within(it, ridge, bounds, gradient_norm / _head_constant_within(it, ridge, bounds, 0.0))


def _head_constant_within(it: Iterate, ridge: float, bounds: Bounds, distance: float) -> float:
    """C_L = 2λ + 2 N M M0² (2 sqrt(M) M0 R + ln J + 2), at most so far from the present head.

    The features are P σ(c), of squared norm at most ‖P‖² M M0², with a 1 appended for a bias.
    """
    pool = it.network.layers[-1].link.metric.largest
    squares = _entries(it) * bounds.value**2 * pool + (0.0 if it.biases[-1] is None else 1.0)
    return 2.0 * ridge * pool + 2.0 * it.samples * squares * (_largest_residual(it, bounds, distance) + 2.0)


def _largest_residual(it: Iterate, bounds: Bounds, distance: float) -> float:
    """2 sqrt(M) M0 R + ln J, eq. (3.27), with R = ‖W_L P‖ at most so far from here; a bias adds its own spread."""
    pool = it.network.layers[-1].link.metric.largest
    radius = math.sqrt(it.norms[-1]) + math.sqrt(pool) * distance
    bias = it.biases[-1]
    spread = 0.0 if bias is None else float(bias.max() - bias.min()) + 2.0 * distance
    return 2.0 * math.sqrt(_entries(it)) * bounds.value * radius + spread + math.log(it.network.classes)


def _counted(it: Iterate) -> Tensor | None:
    """How often a sample counts in a constant for c_l: at least once, since every sample takes that step by itself."""
    return None if it.sample_weight is None else it.sample_weight.clamp(min=1.0)


def _count(it: Iterate) -> float:
    counted = _counted(it)
    return float(len(it.labels)) if counted is None else float(counted.sum())


def _entries(it: Iterate) -> int:
    return int(torch.Size(it.active[-1].shape[1:]).numel())
