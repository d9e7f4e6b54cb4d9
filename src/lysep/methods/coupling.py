"""How far every group of layers goes: the linearized loss over the few directions that a sweep has.

    min over s  ‖ρ + C s‖² + ν sᵀ K s

A column of C is what one direction does to ρ, to first order: Σ_l δ_{l,n}·(D_l v_{l,n}) over the layers of a group, D
the solutions of the separated problems, or the step taken last. K is what the separated problems charge for these
directions; by Cauchy and Schwarz it bounds what each group does alone, and with ν = the number of groups − 1 the whole
is an upper bound of the linearized loss: docs/fast.md. Smaller ν trust the linearization, larger ν go less far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lysep.methods.separation import Separated
from lysep.objective import Point

_GROUPS = (
    8  # so many groups of neighbouring layers at most: what the coupling costs grows with the depth, not its square
)
_RIDGE = 1e-8  # of the scaled problem: directions may be dependent


class Coupling:
    def __init__(
        self, point: Point, rho: Tensor, deltas: list[Tensor], layers: list[Separated], last: list[Tensor] | None
    ) -> None:
        depth = len(layers)
        groups = min(depth, _GROUPS)
        self._group = [l * groups // depth for l in range(depth)]
        self._directions = [[layer.solution for layer in layers]]
        if last is not None:
            self._directions.append(last)
        kinds = len(self._directions)
        C = rho.new_zeros(kinds, groups, len(rho))
        K = torch.zeros(kinds, kinds, groups, dtype=torch.float64)
        for l, layer in enumerate(layers):
            g = self._group[l]
            for i, steps in enumerate(self._directions):
                C[i, g] += _effect(point, l, steps[l], deltas[l])
            K[0, 0, g] -= (layer.moment * layer.solution).sum()
            if last is not None:
                K[0, 1, g] -= (layer.moment * last[l]).sum()
                K[1, 1, g] += (layer.metric @ last[l] @ layer.gram * last[l]).sum()
        if last is not None:
            K[1, 0] = K[0, 1]
        C = C.flatten(0, 1).double()
        self._hessian = C @ C.T
        self._slope = K[0].flatten()
        self._charge = K.diag_embed().transpose(1, 2).flatten(0, 1).flatten(1)

    def solve(self, damping: float) -> tuple[list[Tensor], float]:
        """The step of every layer, and by how much the loss falls if it is as the linearization says."""
        H = self._hessian + damping * self._charge
        scale = H.diagonal().clamp(min=torch.finfo(H.dtype).tiny).rsqrt()
        ridge = _RIDGE * torch.eye(len(H), dtype=H.dtype)
        factor, _ = torch.linalg.cholesky_ex(H * scale.outer(scale) + ridge)
        s = torch.cholesky_solve((scale * self._slope)[:, None], factor)[:, 0] * scale
        expected = float(2.0 * self._slope @ s - s @ self._hessian @ s)
        lengths = s.reshape(len(self._directions), -1).tolist()
        steps = []
        for l, g in enumerate(self._group):
            step = lengths[0][g] * self._directions[0][l]
            for length, direction in zip(lengths[1:], self._directions[1:], strict=True):
                step = step + length[g] * direction[l]
            steps.append(step)
        return steps, expected


def _effect(point: Point, l: int, step: Tensor, delta: Tensor) -> Tensor:
    """δ_n · (D v_n) for every sample: what a step of one layer does to ρ_n, to first order."""
    layer, W = point.network.layers[l], point.weights[l]
    columns = W[0].numel()
    change = layer.link.map(step[:, :columns].reshape(W.shape).to(W.dtype), point.features[l])
    if layer.has_bias:
        change = layer.link.add_bias(change, step[:, columns].to(W.dtype))
    return (change * delta).flatten(1).sum(1)
