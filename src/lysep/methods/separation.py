"""The separated problems of `fast`: one sample-weighted least-squares problem a layer, solved in closed form.

    min over D  Σ_n ω_n ‖D v_n − Δ*_n‖²_B,    ω_n = δ_nᵀ B⁻¹ δ_n,    Δ*_n = −ρ_n B⁻¹ δ_n / ω_n

is solved by D = −B⁻¹ (Σ ρ_n δ_n v_nᵀ) (Σ ω_n v_n v_nᵀ)⁻¹: v_n are the link's features with a 1 for the bias, δ_n its
gains, ω_n, the squared gain, takes the place of the paper's gap weight, and B ≻ 0 may be anything.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

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
_SAMPLED, _A_COLUMN = 500, 40  # the samples at least, and the rows a column, that second moments are made from
_WITH_PLACES = 50  # the samples at least for G and A of a layer with many places, where every sample has many rows
_SHARES = 2.0**32  # of the sample with the largest gain; any other has a whole number of them, at least one


@dataclass(frozen=True)
class Separated:
    """The problems of all layers of one shape, stacked: matrices in float64, solutions D (outputs × columns)."""

    layers: list[int]
    regressions: list[Regression]
    """For the coupling."""
    gram: Tensor
    """Σ ω v vᵀ with its ridge."""
    metric: Tensor
    """B."""
    moment: Tensor
    """Σ ρ δ vᵀ: half the gradient of the loss."""
    target: Tensor
    """The moment that is solved for: that of these samples, or its mean over the last batches."""
    solution: Tensor


def separate(point: Point, damping: float, averages: Averages | None = None) -> list[Separated]:
    """Every layer's problem; layers of equal shape are solved together.

    Without averages the problems are those of these samples alone.
    """
    passed = _reverse_pass(point)
    averages, ridge = averages or Averages({}), RIDGE + DAMPED * damping
    return [_solved(layers, [passed[l] for l in layers], ridge, averages) for layers in _by_shape(point)]


class _Passed(NamedTuple):
    """What the reverse pass leaves of a layer: its moment, samples for the coupling, and samples for second moments."""

    moment: Tensor
    coupled: Regression
    shaping: Regression


def _reverse_pass(point: Point) -> list[_Passed]:
    """What the separated problems are made of, layer by layer, while ρ_n δ_n is in the cache.

    ρ_n = sqrt(r_n), and δ_n is its gradient in what the layer produces. Both are times sqrt(w_n) for a sample of weight
    w_n: every sum over samples is then weighted.
    """
    rho, slope = head.gains(point.log_probs, point.labels)
    if point.sample_weight is not None:
        rho, slope = per_sample(point.sample_weight.sqrt(), rho), per_sample(point.sample_weight, slope)
        rho = rho.clamp_(min=torch.finfo(rho.dtype).tiny ** 0.5)  # where a weight is lost in it, so is the slope
    enough = _enough(point)
    most, samples = max(enough), {size: _sample(rho, slope, size) for size in {*enough}}
    passed = list[_Passed]()
    for l, layer in reversed(list(enumerate(point.network.layers))):
        link, features = layer.link, point.features[l]
        moment = link.moment(features, slope, layer.has_bias)
        regressions = {
            size: Regression(link, features[samples[size].chosen], samples[size].gains(slope), layer.has_bias)
            for size in {most, enough[l]}
        }
        passed.append(_Passed(moment, regressions[most], regressions[enough[l]]))
        if l > 0:
            pulled = link.pull_back(point.weights[l], slope)
            slope = layer.activation.pull_back(point.aux[l - 1], point.active[l], pulled)
    return passed[::-1]


@dataclass(frozen=True)
class _Sample:
    """Some samples for all: their second moments are to be those of all, but for the noise of sampling."""

    chosen: Tensor | slice
    factors: Tensor
    """The square root of how many samples each stands for, over its ρ."""

    def gains(self, slope: Tensor) -> Tensor:
        """Their δ, so many times."""
        return per_sample(self.factors, slope[self.chosen])


def _enough(point: Point) -> list[int]:
    """For every layer's second moments; the coupling gets the most. Layers of one place share their samples."""
    places = [math.prod(layer.link.out_shape[1:]) for layer in point.network.layers]
    needs = [math.ceil(_A_COLUMN * (W[0].numel() / p)) for W, p in zip(point.weights, places, strict=True)]
    most = max(_SAMPLED, *needs)
    return [most if p == 1 else max(_WITH_PLACES, need) for p, need in zip(places, needs, strict=True)]


def _sample(rho: Tensor, slope: Tensor, size: int) -> _Sample:
    """Every sample as often as its squared gain in the head says, at equal distances along their running sum.

    Late in training few samples have any gain: they are what must not be missed. Shares are whole numbers because
    their sums are exact, in whatever order a GPU adds.
    """
    if len(rho) <= 2 * size:
        return _Sample(slice(None), 1.0 / rho)
    gains = per_sample(1.0 / rho, slope).square_().sum(1, dtype=torch.float64)
    shares = (gains * (_SHARES / gains.max().clamp_(min=torch.finfo(torch.float64).tiny))).long() + 1
    ends = shares.cumsum(0)
    distance = ends[-1].double() / size
    places = (torch.arange(size, dtype=torch.float64, device=rho.device) + 0.5) * distance
    chosen = torch.searchsorted(ends, places.long(), right=True).clamp_(max=len(rho) - 1)  # also if gains are NaN
    return _Sample(chosen, (distance / shares[chosen]).sqrt() / rho[chosen])


def _by_shape(point: Point) -> list[list[int]]:
    places = defaultdict(list)
    for l, (layer, W) in enumerate(zip(point.network.layers, point.weights, strict=True)):
        places[len(W), W[0].numel(), layer.has_bias].append(l)
    return list(places.values())


def _solved(layers: list[int], passed: list[_Passed], ridge: float, averages: Averages) -> Separated:
    first, regressions = layers[0], [of_layer.shaping for of_layer in passed]
    second = torch.stack([_second_moment(regression.delta) for regression in regressions])
    metric, root = _roots(averages.mean(GAINS, first, second))
    grams = [
        regression.gram(_squared_gains(regression.delta, R))
        for regression, R in zip(regressions, root.to(regressions[0].delta.dtype).unbind(), strict=True)
    ]
    gram = _with_ridge(averages.mean(GRAM, first, torch.stack(grams)), ridge, regressions[0].bias)
    moment = torch.stack([of_layer.moment for of_layer in passed])
    target = averages.mean(MOMENT, first, moment)
    factor = torch.linalg.cholesky_ex(gram).L
    solution = -torch.cholesky_solve((root @ (root @ target)).mT, factor).mT
    return Separated(layers, [of_layer.coupled for of_layer in passed], gram, metric, moment, target, solution)


def _second_moment(delta: Tensor) -> Tensor:
    """Σ δ δᵀ over places and samples: outputs × outputs."""
    by_output = delta.transpose(0, 1).flatten(1).double()
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
