"""The start that is measured on the data: it helps every method where layers are many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_DEVIATION, _BIAS = 0.5, 0.3


@torch.no_grad()
def measured(model: nn.Module, X: Tensor, seed: int) -> None:
    """Hidden units to mean 0 and deviation 0.5 on these samples, first layer to last, then biases uniform in ±0.3."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    modules = [m for m in model.modules() if not list(m.children())]
    linear = [m for m in modules if isinstance(m, nn.Linear | nn.Conv2d)]
    z = X
    for module in modules:
        z = module(z)
        if module in linear[:-1]:
            units = [0, *range(2, z.dim())]  # all but the channels
            scale = _DEVIATION / z.std(units).clamp_min(torch.finfo(z.dtype).tiny)
            drawn = torch.rand(len(scale), generator=generator, dtype=torch.float64, device="cpu")
            jitter = ((2.0 * drawn - 1.0) * _BIAS).to(z)
            shift = jitter - scale * z.mean(units)
            module.weight.mul_(scale.view(-1, *[1] * (module.weight.dim() - 1)))
            module.bias.mul_(scale).add_(shift)
            shape = (1, -1, *[1] * (z.dim() - 2))
            z = z * scale.view(shape) + shift.view(shape)
