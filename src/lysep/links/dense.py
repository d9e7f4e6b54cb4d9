"""The dense link: nn.Linear without its bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lysep.links.base import KroneckerMetric, Link
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

    def effects(self, features: Tensor, grad: Tensor, steps: Tensor, bias: bool) -> Tensor:
        """All steps in one product."""
        D = steps.flatten(0, 1)
        changes = torch.addmm(D[:, -1:], D[:, :-1], features.T) if bias else D @ features.T
        return changes.reshape(len(steps), *grad.T.shape).mul_(grad.T).sum(1)

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
    def out_shape(self) -> tuple[int, ...]:  # type: ignore[override]  # read only
        return (self.out_features,)
