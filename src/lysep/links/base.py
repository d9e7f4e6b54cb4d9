"""What every link can do; the rest of the package knows links by this interface alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lysep.links.fixed import FixedMap
from lysep.links.least_squares import solve_ridge
from lysep.sums import per_sample


@dataclass(frozen=True, eq=False)
class KroneckerMetric:
    """M = I ⊗ M_y ⊗ M_x on weights seen as outputs × channels × height × width: W ↦ tr(W M Wᵀ).

    Least squares solves for Wᵀ (columns × targets), and so has tr(Aᵀ M A).
    """

    channels: int
    y: Tensor
    x: Tensor

    def apply(self, W: Tensor) -> Tensor:
        """W M in float64, in the shape of W: half the gradient of tr(W M Wᵀ)."""
        blocks = W.double().reshape(W.shape[0], self.channels, self.y.shape[0], self.x.shape[0])
        return (self.y @ blocks @ self.x).reshape(W.shape)

    @cached_property
    def largest(self) -> float:
        """The largest eigenvalue of M."""
        return float(torch.linalg.eigvalsh(self.y)[-1] * torch.linalg.eigvalsh(self.x)[-1])

    @cached_property
    def matrix(self) -> Tensor:
        return self._expand(torch.kron(self.y, self.x))

    @cached_property
    def root(self) -> Tensor:
        return self._expand(torch.kron(_root(self.y), _root(self.x)))

    def _expand(self, block: Tensor) -> Tensor:
        return torch.kron(torch.eye(self.channels, dtype=block.dtype, device=block.device), block.contiguous())


def with_one(columns: Tensor) -> Tensor:
    """Samples in columns, with a 1 appended to each: what a bias multiplies."""
    return torch.cat([columns, columns.new_ones(1, columns.shape[1])])


def _root(M: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(M)
    root: Tensor = values.clamp(min=0.0).sqrt()[:, None] * vectors.T
    return root.contiguous()


@dataclass(frozen=True, eq=False)
class Regression:
    """Samples as a regression for the change D of a link's parameters sees them.

    v are the features that an output meets, with a 1 appended where there is a bias; a D is a matrix, outputs × (inputs
    and, for a bias, one more).
    """

    link: Link
    features: Tensor
    delta: Tensor
    bias: bool

    def gram(self, factors: Tensor) -> Tensor:
        """Σ f v vᵀ in float64, `factors` f one number a sample and place."""
        total = torch.zeros((), dtype=torch.float64, device=factors.device)
        for V, f in self.link.rows(self.features, factors.unsqueeze(1)):
            v = with_one(V.T) if self.bias else V.T
            total = total + (v * f[:, 0]) @ v.T
        return total

    def effects(self, steps: Tensor) -> Tensor:
        """Σ δ·(D v), the sum over the places of a sample, for a stack of steps D: steps × samples."""
        return self.link.effects(self.features, self.delta, steps.to(self.delta.dtype), self.bias)


class Link(ABC):
    """A map that is linear in its input and linear in its weight, behind a fixed linear map P.

    Index legend: n samples, o outputs, i inputs (c channels, y and x positions for images). `features` are what the
    map acts on, already pooled and flattened: P_{l-1} σ(c_{l-1}), or X in the first link.
    """

    fixed: FixedMap
    out_shape: tuple[int, ...]

    @abstractmethod
    def map(self, weight: Tensor, features: Tensor) -> Tensor:
        """K · features, without the bias."""

    @abstractmethod
    def adjoint(self, weight: Tensor, grad: Tensor) -> Tensor:
        """Kᵀ · grad, back to the shape of the features."""

    @abstractmethod
    def add_bias(self, mapped: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
        """mapped + b 1ᵀ, in `out` where it is given."""

    @abstractmethod
    def mean(self, values: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """The least-squares solution b of b 1ᵀ = values: the mean over everything that shares an entry of b."""

    @abstractmethod
    def rows(self, features: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Blocks (V, B) in float64 of the least-squares problem V · kᵀ = B for the weight as a matrix k (o × i)."""

    @cached_property
    @abstractmethod
    def metric(self) -> KroneckerMetric:
        """The quadratic form ‖K P‖_F² on the weight, on the weight's device."""

    def squared_norm(self, weight: Tensor) -> float:
        """‖K P‖_F² of the true linear map on the activated auxiliary variable."""
        W = weight.double()
        return float((W * self.metric.apply(W)).sum())

    def correlate(self, features: Tensor, grad: Tensor) -> Tensor:
        """Σ_n grad_n ⊗ features_n in float64: the adjoint of the map in its weight."""
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        for V, G in self.rows(features, grad):
            total = total + G.T @ V
        return total.reshape(self.weight_shape)

    def moment(self, features: Tensor, grad: Tensor, bias: bool) -> Tensor:
        """The same as a matrix, outputs × inputs, and with a column more for a bias."""
        by_input = self.correlate(features, grad).flatten(1)
        if not bias:
            return by_input
        by_output = grad.transpose(0, 1).flatten(1).sum(1, dtype=torch.float64)
        return torch.cat([by_input, by_output[:, None]], 1)

    def effects(self, features: Tensor, grad: Tensor, steps: Tensor, bias: bool) -> Tensor:
        """grad_n·(change of the output), a stack of changes of weight and bias as such matrices: steps × samples."""
        effects = []
        for D in steps:
            change = self.map((D[:, :-1] if bias else D).reshape(self.weight_shape), features)
            change = self.add_bias(change, D[:, -1]) if bias else change
            effects.append((change * grad).flatten(1).sum(1))
        return torch.stack(effects)

    def solve(
        self, features: Tensor, gap: Tensor, ridge: float, weight: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The weight that minimizes ‖gap‖² + ridge·‖K P‖², where `gap` is what it is with the present weight.

        Eq. (3.10) for a dense and eq. (4.6) for a convolution link.
        """
        if sample_weight is not None:
            root = sample_weight.sqrt()
            features, gap = per_sample(root, features), per_sample(root, gap)
        current = weight.double().reshape(weight.shape[0], -1).T
        change = solve_ridge(lambda: self.rows(features, -gap), ridge, self.metric, current)
        return (current + change).T.reshape(weight.shape).to(weight.dtype)

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]: ...

    def pull_back(self, weight: Tensor, grad: Tensor) -> Tensor:
        """(K P)ᵀ · grad, back to the shape of the activated auxiliary variable."""
        return self.fixed.adjoint(self.adjoint(weight, grad))
