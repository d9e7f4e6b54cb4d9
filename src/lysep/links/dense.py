"""The dense link: nn.Linear without its bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lysep.links.base import KroneckerMetric, Link, Regression, with_one
from lysep.links.fixed import FixedMap
from lysep.sums import weighted_mean


@dataclass(frozen=True)
class DenseLink(Link):
    """W · v for every sample v.

    Rows are samples, as in PyTorch, but results lie in memory column by column: with narrow layers a product
    W (o×i) · Vᵀ (i×n) runs three times faster than V (n×i) · Wᵀ, and everything pointwise keeps the layout it finds.
    """

    fixed: FixedMap
    in_features: int
    out_features: int
    device: torch.device

    def map(self, weight: Tensor, features: Tensor) -> Tensor:
        return (weight @ features.T).T

    def adjoint(self, weight: Tensor, grad: Tensor) -> Tensor:
        return (weight.T @ grad.T).T

    def add_bias(self, mapped: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.add(mapped, bias, out=out)

    def mean(self, values: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return weighted_mean(values, sample_weight).to(values.dtype)

    def rows(self, features: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        yield features.double(), target.double()

    def regression(self, features: Tensor, delta: Tensor, rho: Tensor, factors: Tensor, bias: bool) -> Regression:
        return DenseRegression(features, delta, rho, factors, bias)

    def squared_norm(self, weight: Tensor) -> float:
        if self.fixed.axis_grams is None:  # the plain Frobenius norm, and by far the commonest case
            return float(weight.double().square().sum())
        return super().squared_norm(weight)

    @cached_property
    def metric(self) -> KroneckerMetric:
        one = torch.ones(1, 1, dtype=torch.float64, device=self.device)
        if self.fixed.axis_grams is None:
            return KroneckerMetric(self.in_features, one, one)
        y, x = (gram.to(self.device) for gram in self.fixed.axis_grams)
        return KroneckerMetric(self.fixed.pooled_shape[0], y, x)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_features, self.in_features)

    @property
    def out_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.out_features,)


class DenseRegression(Regression):
    """All sums from two arrays: u = sqrt(f) v and d = ρ δ / sqrt(f), samples in columns.

    Σ f v vᵀ = u uᵀ, Σ ρ δ vᵀ = d uᵀ, ρ δ·(D v) = d·(D u). Where f is zero, so is δ.
    """

    def __init__(self, features: Tensor, delta: Tensor, rho: Tensor, factors: Tensor, bias: bool) -> None:
        root = factors.sqrt()
        self._u = with_one(features.T).mul_(root) if bias else features.T * root
        self._d = delta.T * torch.where(root > 0.0, rho / root, 0.0)
        u = self._u.double()
        self.gram, self.moment = u @ u.T, self._d.double() @ u.T

    def effects(self, steps: Tensor) -> Tensor:
        moved = steps.flatten(0, 1).to(self._u.dtype) @ self._u
        return moved.reshape(len(steps), *self._d.shape).mul_(self._d).sum(1)
