"""The separated problems of `fast`: one sample-weighted least-squares problem a layer, solved in closed form.

    min over D  Σ_n ω_n ‖D v_n − Δ*_n‖²_B,    ω_n = δ_nᵀ B⁻¹ δ_n,    Δ*_n = −ρ_n B⁻¹ δ_n / ω_n

is solved by D = −B⁻¹ (Σ ρ_n δ_n v_nᵀ) (Σ ω_n v_n v_nᵀ)⁻¹: v_n are the link's features with a 1 for the bias, δ_n its
gains, ω_n, the squared gain, takes the place of the paper's gap weight, and B ≻ 0 may be anything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from lysep import head
from lysep.links.base import Regression
from lysep.methods.averages import GAINS, GRAM, MOMENT, Averages
from lysep.objective import Point
from lysep.sums import per_sample

RIDGE = 1e-4  # relative to the mean variance of the features; what keeps nearly dependent features from running away
DAMPED = 0.3
BIAS_RIDGE = 1e-8  # of the ridge, for the bias: features may have any mean
GAIN_RIDGE = 1e-4  # of the mean squared gain, for B
_LEAST_VARIANCE = 1e-9  # of a feature's mean square: below it the variance is rounding, which shall decide nothing
_ROUNDING = 1e-13
_SAMPLED = 700  # samples that B is made from: it may be anything, and a rough second moment does


@dataclass(frozen=True)
class Separated:
    """The problems of all layers of one shape, stacked: matrices in float64, solutions D (outputs × columns)."""

    layers: list[int]
    regressions: list[Regression]
    gram: Tensor
    """Σ ω v vᵀ with its ridge."""
    metric: Tensor
    """B."""
    moment: Tensor
    """Σ ρ δ vᵀ: half the gradient of the loss."""
    target: Tensor
    """The moment that is solved for: that of these samples, or its mean over the last batches."""
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
        deltas.append(layers[l].activation.derivative(point.aux[l - 1], point.active[l]).mul_(pulled))
    return rho, deltas[::-1]


def separate(
    point: Point, rho: Tensor, deltas: list[Tensor], damping: float, averages: Averages | None = None
) -> list[Separated]:
    """Every layer's problem; layers of equal shape are solved together.

    Without averages the problems are those of these samples alone.
    """
    averages, ridge = averages or Averages({}), RIDGE + DAMPED * damping
    return [_separate(point, rho, deltas, layers, ridge, averages) for layers in _by_shape(point)]


def _by_shape(point: Point) -> list[list[int]]:
    places = defaultdict(list)
    for l, (layer, W) in enumerate(zip(point.network.layers, point.weights, strict=True)):
        places[len(W), W[0].numel(), layer.has_bias].append(l)
    return list(places.values())


def _separate(
    point: Point, rho: Tensor, deltas: list[Tensor], layers: list[int], ridge: float, averages: Averages
) -> Separated:
    bias = point.network.layers[layers[0]].has_bias
    second = torch.stack([_second_moment(deltas[l]) for l in layers])
    metric, root = _roots(averages.mean(GAINS, layers[0], second))
    regressions = []
    for l, R in zip(layers, root.to(rho.dtype).unbind(), strict=True):
        link, delta = point.network.layers[l].link, deltas[l]
        regressions.append(link.regression(point.features[l], delta, rho, _squared_gains(delta, R), bias))
    gram = torch.stack([regression.gram for regression in regressions])
    gram = _with_ridge(averages.mean(GRAM, layers[0], gram), ridge, bias)
    moment = torch.stack([regression.moment for regression in regressions])
    target = averages.mean(MOMENT, layers[0], moment)
    factor = torch.linalg.cholesky_ex(gram).L
    solution = -torch.cholesky_solve((root @ (root @ target)).mT, factor).mT
    return Separated(layers, regressions, gram, metric, moment, target, solution)


def _second_moment(delta: Tensor) -> Tensor:
    """Σ δ δᵀ over places and samples, or every so many of them: outputs × outputs."""
    every = max(1, len(delta) // _SAMPLED)
    by_output = delta[::every].transpose(0, 1).flatten(1).double()
    return by_output @ by_output.T


def _roots(M: Tensor) -> tuple[Tensor, Tensor]:
    """B = M^(1/2), the B whose problem is tightest (docs/fast.md), and R with R R = B⁻¹; M is a stack."""
    values, vectors = torch.linalg.eigh(M)
    values = values.clamp_(min=0.0) + GAIN_RIDGE * values.mean(-1, keepdim=True) + torch.finfo(M.dtype).tiny
    scaled = vectors * values.pow(0.25)[:, None]
    return scaled @ scaled.mT, (vectors * values.pow(-0.25)[:, None]) @ vectors.mT


def _squared_gains(delta: Tensor, root: Tensor) -> Tensor:
    """ω = δᵀ B⁻¹ δ, one a sample; with several places q in a sample, ω_q = ‖δ_q‖ Σ ‖δ_q‖ with the same norm."""
    scaled = root @ delta.transpose(0, 1).flatten(1)
    squares = scaled.square_().sum(0)
    if delta.dim() == 2:
        return squares
    norms = squares.sqrt_().reshape(len(delta), *delta.shape[2:])
    return per_sample(norms.flatten(1).sum(1), norms)


def _with_ridge(gram: Tensor, ridge: float, bias: bool) -> Tensor:
    """The ridge is in units of the features' variance, not of their mean, so that an offset does not drown it."""
    diagonal = gram.diagonal(dim1=1, dim2=2) + torch.finfo(gram.dtype).tiny  # without gains there is nothing to solve
    if bias:
        squares = diagonal[:, :-1]
        variances = torch.maximum(squares - gram[:, -1, :-1].square() / diagonal[:, -1:], _LEAST_VARIANCE * squares)
        added = (ridge * variances.mean(1, keepdim=True)).repeat(1, gram.shape[1])
        added[:, -1] *= BIAS_RIDGE
    else:
        added = ridge * diagonal.mean(1, keepdim=True)
    return gram + (added + _ROUNDING * diagonal).diag_embed()
