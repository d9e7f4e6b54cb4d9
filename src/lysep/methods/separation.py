"""The separated problems of `fast`: one sample-weighted least-squares problem a layer, solved in closed form.

    min over D  Σ_n ω_n ‖D v_n − Δ*_n‖²_B,    ω_n = δ_nᵀ B⁻¹ δ_n,    Δ*_n = −ρ_n B⁻¹ δ_n / ω_n

is solved by D = −B⁻¹ (Σ ρ_n δ_n v_nᵀ) (Σ ω_n v_n v_nᵀ)⁻¹: v_n are the link's features with a 1 for the bias, δ_n its
gains, ω_n, the squared gain, takes the place of the paper's gap weight, and B ≻ 0 may be anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lysep import head
from lysep.objective import Point
from lysep.sums import per_sample

_RIDGE = 1e-3  # relative to the mean variance of the features; what keeps nearly dependent features from running away
_BIAS_RIDGE = 1e-8  # of the ridge, for the bias: features may have any mean
_GAIN_RIDGE = 1e-3  # of the mean squared gain, for B
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Separated:
    """One layer's problem, matrices in float64, and its solution D (outputs × columns)."""

    gram: Tensor
    """Σ ω v vᵀ with its ridge."""
    metric: Tensor
    """B."""
    moment: Tensor
    """Σ ρ δ vᵀ: half the gradient of the loss."""
    solution: Tensor


def gains(point: Point) -> tuple[Tensor, list[Tensor]]:
    """ρ_n = sqrt(r_n) and for every layer δ_n, the gradient of ρ_n in what the layer produces.

    Both are times sqrt(w_n) for a sample of weight w_n: every sum over samples is then weighted.
    """
    rho, delta = head.gains(point.log_probs, point.labels)
    if point.sample_weight is not None:
        root = point.sample_weight.sqrt()
        rho, delta = per_sample(root, rho), per_sample(root, delta)
    deltas = [delta]
    layers = point.network.layers
    for l in reversed(range(1, len(layers))):
        pulled = layers[l].link.pull_back(point.weights[l], deltas[-1])
        deltas.append(pulled * layers[l].activation.derivative(point.aux[l - 1], point.active[l]))
    return rho, deltas[::-1]


def separate(point: Point, rho: Tensor, deltas: list[Tensor]) -> list[Separated]:
    """Every layer's problem. Small matrices of equal size are factorized together."""
    layers = point.network.layers
    metrics = _by_shape(_roots, [_second_moment(delta) for delta in deltas])
    grams, moments = [], []
    for layer, features, delta, (_, inverse) in zip(layers, point.features, deltas, metrics, strict=True):
        squares = _squared_gains(delta, inverse)
        gram, moment = layer.link.normal_equations(features, squares, per_sample(rho, delta), layer.has_bias)
        grams.append(_with_ridge(gram, layer.has_bias))
        moments.append(moment)
    factors = _by_shape(torch.linalg.cholesky_ex, grams)
    separated = []
    for (metric, inverse), gram, moment, (factor, _) in zip(metrics, grams, moments, factors, strict=True):
        solution = -torch.cholesky_solve((inverse @ moment).T, factor).T
        separated.append(Separated(gram, metric, moment, solution))
    return separated


def _second_moment(delta: Tensor) -> Tensor:
    """Σ δ δᵀ over samples and places, outputs × outputs, with its ridge."""
    by_output = delta.transpose(0, 1).flatten(1).double()
    M = by_output @ by_output.T
    return M + (_GAIN_RIDGE * M.diagonal().mean()) * torch.eye(len(M), dtype=M.dtype, device=M.device)


def _roots(M: Tensor) -> tuple[Tensor, Tensor]:
    """B = M^(1/2) and its inverse, of a stack of matrices: the B whose problem is tightest, see docs/fast.md."""
    values, vectors = torch.linalg.eigh(M)
    values = values.clamp_(min=torch.finfo(M.dtype).tiny).sqrt_()[:, None]
    return (vectors * values) @ vectors.mT, (vectors / values) @ vectors.mT


def _squared_gains(delta: Tensor, inverse: Tensor) -> Tensor:
    """ω = δᵀ B⁻¹ δ, one a sample; with several places q in a sample, ω_q = ‖δ_q‖ Σ ‖δ_q‖ with the same norm."""
    squares: Tensor = (torch.tensordot(delta, inverse.to(delta.dtype), ([1], [0])).movedim(-1, 1) * delta).sum(1)
    if squares.dim() == 1:
        return squares
    norms: Tensor = squares.clamp_(min=0.0).sqrt_()
    return per_sample(norms.flatten(1).sum(1), norms)


def _with_ridge(gram: Tensor, bias: bool) -> Tensor:
    """The ridge is in units of the features' variance, not of their mean, so that an offset does not drown it."""
    diagonal = gram.diagonal() + torch.finfo(gram.dtype).tiny  # without gains there is nothing to solve
    if bias:
        variances = (diagonal[:-1] - gram[-1, :-1].square() / diagonal[-1]).clamp_(min=0.0)
        ridge = (_RIDGE * variances.mean()).repeat(len(gram))
        ridge[-1] *= _BIAS_RIDGE
    else:
        ridge = _RIDGE * diagonal.mean()
    regular: Tensor = gram + (ridge + _ROUNDING * diagonal).expand(len(gram)).diag()
    return regular


def _by_shape(function: Callable[[Tensor], tuple[Tensor, ...]], matrices: list[Tensor]) -> list[tuple[Tensor, ...]]:
    """A function of stacks of matrices, applied to matrices of any shapes."""
    places = defaultdict(list)
    for place, matrix in enumerate(matrices):
        places[matrix.shape].append(place)
    results: list[tuple[Tensor, ...]] = [()] * len(matrices)
    for group in places.values():
        found = function(torch.stack([matrices[place] for place in group]))
        for place, result in zip(group, zip(*found, strict=True), strict=True):
            results[place] = result
    return results
