"""How far every group of layers goes: the linearized loss over the few directions that a sweep has.

    min over s  ‖ρ + C s‖² + ν sᵀ K s

A column of C is what one direction does to ρ, to first order: Σ_l δ_{l,n}·(D_l v_{l,n}) over the layers of a group, D
the solutions of the separated problems, or the step taken last. K is what the separated problems charge for these
directions; as many times as there are layers, it bounds what they do to these samples: docs/fast.md. Smaller ν trust
the linearization, larger ν go less far.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lysep.methods.separation import Separated

_GROUPS = 8  # of neighbouring layers, at most: what the coupling costs grows with the depth, not with its square
_RIDGE = 1e-8  # of the scaled problem: directions may be dependent


class Coupling:
    """Index legend: i, j kinds of direction (the separated solution; the last step), g groups, n samples."""

    def __init__(self, problems: list[Separated], last: list[Tensor] | None) -> None:
        depth = sum(len(problem.layers) for problem in problems)
        groups, kinds = min(depth, _GROUPS), 1 if last is None else 2
        self._problems = problems
        self._directions = [_directions(problem, last) for problem in problems]
        self._groups = [[l * groups // depth for l in problem.layers] for problem in problems]
        some = problems[0].regressions[0].delta
        C = some.new_zeros(groups, kinds, len(some))
        slopes = torch.zeros(kinds, groups, dtype=torch.float64, device=some.device)
        charges = torch.zeros(kinds, kinds, groups, dtype=torch.float64, device=some.device)
        for problem, directions, group in zip(problems, self._directions, self._groups, strict=True):
            gather = torch.eye(groups, dtype=torch.float64, device=some.device)[group]
            slopes -= (problem.moment * directions).sum((2, 3)) @ gather
            charges += _charges(problem, directions) @ gather
            for g, regression, of_layer in zip(group, problem.regressions, directions.unbind(1), strict=True):
                C[g] += regression.effects(of_layer)
        C = C.flatten(0, 1).double()
        self._hessian = C @ C.T
        self._slope = slopes.T.flatten()
        self._charge = torch.block_diag(*charges.movedim(2, 0))

    def gained(self) -> float:
        """By how much the last step has lowered the loss of these samples, whether it saw them or not.

        ‖ρ − a‖² − ‖ρ‖², a what the last step does to ρ: the loss before it, by linearizing at the point it led to.
        """
        last = torch.arange(len(self._slope), device=self._slope.device) % 2 == 1
        return float(2.0 * self._slope[last].sum() + self._hessian[last][:, last].sum())

    def solve(self, damping: float) -> tuple[list[Tensor], float]:
        """The step of every layer, and by how much the loss falls if it is as the linearization says."""
        H = self._hessian + damping * self._charge
        scale = H.diagonal().clamp(min=torch.finfo(H.dtype).tiny).rsqrt()
        ridge = _RIDGE * torch.eye(len(H), dtype=H.dtype, device=H.device)
        factor = torch.linalg.cholesky_ex(H * scale.outer(scale) + ridge).L
        s = torch.cholesky_solve((scale * self._slope)[:, None], factor)[:, 0] * scale
        expected = float(2.0 * self._slope @ s - s @ self._hessian @ s)
        lengths = s.reshape(-1, len(self._directions[0]))
        steps = dict[int, Tensor]()
        for problem, directions, group in zip(self._problems, self._directions, self._groups, strict=True):
            of_problem = torch.einsum("li,iloc->loc", lengths[group], directions)
            steps.update(zip(problem.layers, of_problem.unbind(), strict=True))
        return [steps[l] for l in sorted(steps)], expected


def _directions(problem: Separated, last: list[Tensor] | None) -> Tensor:
    """kinds × layers × outputs × columns."""
    if last is None:
        return problem.solution[None]
    return torch.stack([problem.solution, torch.stack([last[l] for l in problem.layers])])


def _charges(problem: Separated, directions: Tensor) -> Tensor:
    """tr(D_iᵀ B D_j A) of every layer: kinds × kinds × layers. B D A of the solution is its target, negative."""
    moved = [-problem.target, *(problem.metric @ D @ problem.gram for D in directions[1:])]
    return torch.einsum("iloc,jloc->ijl", torch.stack(moved), directions)
