"""Circle-in/out, the paper's Example 1 (Section 5.1.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lysep.problems.split import Split

RADIUS = math.sqrt(2.0 / math.pi)  # half of the square lies inside


def circle(seed: int = 0, train: int = 3000, test: int = 1000) -> Split:
    """Points uniform in [−1, 1]², labelled 1 within the circle of radius sqrt(2/π) about the origin, else 0."""
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def draw(count: int) -> tuple[Tensor, Tensor]:
        X = 2.0 * torch.rand(count, 2, generator=generator, dtype=torch.float64, device="cpu") - 1.0
        return X, (X.square().sum(1) <= RADIUS**2).long()

    return Split(*draw(train), *draw(test))
