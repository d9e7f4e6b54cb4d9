"""Ridge least squares over many rows and few columns, exact also where the columns are nearly dependent.

    min over D of  Σ_blocks ‖V D − B‖_F² + ridge · ‖D + C‖_M²,      ‖A‖_M² = tr(Aᵀ M A)

D is the change of a weight that is C now, and B what it misses its target by. Solving for the change and not for the
weight makes rounding proportional to the change: with features that are nearly dependent, the second loses everything
below κ² ε ‖C‖, and each sweep would draw that noise anew.

The rows come in blocks, so that a convolution's patches need never be in memory all at once; the sums over them are
all that several machines would have to share. Gram matrices and factorizations are in float64 for every dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
from torch import Tensor

Blocks = Callable[[], Iterable[tuple[Tensor, Tensor]]]

# The Cholesky factor of the Gram matrix with unit diagonal has diagonal entries down to about 1/κ, κ the condition
# number of the scaled columns. Normal equations lose κ² of the 1e16 that float64 has; at 1e-4 half the digits remain,
# beyond it we take the QR factorization, which loses κ only.
_SMALLEST_PIVOT = 1e-4


class Metric(Protocol):
    """The quadratic form W ↦ tr(Wᵀ M W) of a ridge."""

    @property
    def matrix(self) -> Tensor: ...

    @property
    def root(self) -> Tensor:
        """Any F with Fᵀ F = M."""
        ...


def solve_ridge(blocks: Blocks, ridge: float, metric: Metric, current: Tensor) -> Tensor:
    """The minimizer D, columns × targets, for C = current.

    Where it is not unique, the one of least norm with every column of V scaled to length one: the units of a feature
    decide neither what counts as dependent nor what is chosen.
    """
    gram, moment = _normal_equations(blocks)
    if ridge > 0.0:
        gram = gram + ridge * metric.matrix
        moment = moment - ridge * (metric.matrix @ current)
    solution = _cholesky_solve(gram, moment)
    return _qr_solve(blocks, ridge, metric, current) if solution is None else solution


def _normal_equations(blocks: Blocks) -> tuple[Tensor, Tensor]:
    gram = moment = None
    for V, B in blocks():
        G, H = V.T @ V, V.T @ B
        gram, moment = (G, H) if gram is None or moment is None else (gram + G, moment + H)
    assert gram is not None
    assert moment is not None
    return gram, moment


def _cholesky_solve(gram: Tensor, moment: Tensor) -> Tensor | None:
    """Solve gram · W = moment, or None where the factorization would lose too much."""
    diagonal = gram.diagonal()
    empty = diagonal == 0.0  # a feature that is always zero (an image's border, say) takes part in nothing
    scale = torch.where(empty, 0.0, diagonal.rsqrt())
    factor, info = torch.linalg.cholesky_ex(gram * scale.outer(scale) + empty.double().diag())
    if int(info) != 0 or not float(factor.diagonal().min()) > _SMALLEST_PIVOT:
        return None
    return torch.cholesky_solve(moment * scale[:, None], factor) * scale[:, None]


def _qr_solve(blocks: Blocks, ridge: float, metric: Metric, current: Tensor) -> Tensor:
    """QR of the stacked system [V; √ridge·F] D = [B; −√ridge·F C], block after block, then from its small factor."""
    R, columns, rows = None, 0, 0
    for V, B in blocks():
        columns, rows = V.shape[1], rows + V.shape[0]
        stacked = torch.cat([V, B], dim=1)
        R = _triangle(stacked if R is None else torch.cat([R, stacked]))
    assert R is not None
    if ridge > 0.0:
        F = metric.root * ridge**0.5
        R = _triangle(torch.cat([R, torch.cat([F, -F @ current], dim=1)]))
    scale = R[:columns, :columns].norm(dim=0)  # the norms of the stacked columns: no unit of a feature shall matter
    scale = torch.where(scale > 0.0, scale, 1.0)
    U, s, Vh = torch.linalg.svd(R[:columns, :columns] / scale, full_matrices=False)
    cutoff = s.max() * max(rows, columns) * torch.finfo(s.dtype).eps
    inverse = torch.where(s > cutoff, 1.0 / s, torch.zeros_like(s))
    solution: Tensor = Vh.T @ (inverse[:, None] * (U.T @ R[: U.shape[0], columns:])) / scale[:, None]
    return solution


def _triangle(A: Tensor) -> Tensor:
    R: Tensor = torch.linalg.qr(A, mode="r").R
    return R
