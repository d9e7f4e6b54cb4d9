"""The Lipschitz constants of Lemma 3.3, for steps that need no trial.

They hold for activations with bounded σ, σ' and σ''. Every norm of a weight is the norm of the true linear map, K P,
and M, the paper's width, is the number of entries of an activated auxiliary variable per sample, so that the printed
constants serve convolutions too. A head bias, which the paper does not have, widens the range of the logits.
"""

from __future__ import annotations

import math

import torch

from lysep.activations import Bounds
from lysep.objective import Iterate, squared_norm


def hidden_constant(it: Iterate, l: int, bounds: Bounds) -> float:
    """C_l for l ≤ L−2, over ω_{l+1}: eqs. (3.22) and (3.23)."""
    above = it.network.layers[l + 1].link
    norm, bias, c = it.norms[l + 1], it.biases[l + 1], it.aux[l + 1]
    B = c if bias is None else above.add_bias(c, -bias)
    pulled = math.sqrt(squared_norm(above.pull_back(it.weights[l + 1], B)))
    M0, M1, M2 = bounds.value, bounds.derivative, bounds.second
    entries = it.aux[l].numel()
    return 2.0 * (M1**2 * norm + M0 * M2 * math.sqrt(entries) * norm + M2 * pulled + norm)


def top_constant(it: Iterate, bounds: Bounds) -> float:
    """C_{L−1}, as printed at the end of the proof's second part."""
    samples, norm = len(it.labels), math.sqrt(it.norms[-1])
    M1, M2 = bounds.derivative, bounds.second
    largest = _largest_residual(it, norm, bounds)
    inner = (M1**2 * norm + math.sqrt(2.0 * samples) * M2) * largest
    return 2.0 * norm * (inner + norm * (1.0 + 2.0 * math.sqrt(samples) * M1**2))


def head_constant(it: Iterate, ridge: float, gradient_norm: float, bounds: Bounds) -> float:
    """C_L with a radius R that holds W_L and the step taken from it: the step is at most ‖∇S‖ / C_L(‖W_L‖)."""
    norm = math.sqrt(it.norms[-1])
    radius = norm + gradient_norm / _head_constant_within(it, ridge, norm, bounds)
    return _head_constant_within(it, ridge, radius, bounds)


def _head_constant_within(it: Iterate, ridge: float, radius: float, bounds: Bounds) -> float:
    """C_L = 2λ + 2 N M M0² (2 sqrt(M) M0 R + ln J + 2)."""
    squares = _entries(it) * bounds.value**2 + (0.0 if it.biases[-1] is None else 1.0)
    largest = _largest_residual(it, radius, bounds)
    metric = it.network.layers[-1].link.metric.largest
    return 2.0 * ridge * metric + 2.0 * len(it.labels) * squares * (largest + 2.0)


def _largest_residual(it: Iterate, norm: float, bounds: Bounds) -> float:
    """2 sqrt(M) M0 ‖W_L‖ + ln J, eq. (3.27)."""
    b = it.biases[-1]
    spread = 0.0 if b is None else float(b.max() - b.min()) + 2.0 * norm
    return 2.0 * math.sqrt(_entries(it)) * bounds.value * norm + spread + math.log(it.network.classes)


def _entries(it: Iterate) -> int:
    return int(torch.Size(it.active[-1].shape[1:]).numel())
