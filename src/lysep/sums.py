"""Sums and means over samples, in float64 for every dtype; a sample of weight w counts as w samples."""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 2**17  # numbers; a mebibyte in float64 stays in the cache, larger temporaries cost more than the sum


def squared_norm(x: Tensor, sample_weight: Tensor | None = None) -> float:
    """‖x‖_F², samples weighted, summed in float64 for every dtype; block by block, so that no copy of x is made."""
    if sample_weight is not None:
        step = max(1, _BLOCK * len(x) // max(1, x.numel()))
        blocks = zip(x.split(step), sample_weight.split(step), strict=True)
        return float(sum(torch.dot(v.double().reshape(len(v), -1).square().sum(1), w) for v, w in blocks))
    flat = (x.T if x.dim() == 2 and not x.is_contiguous() else x).reshape(-1)
    return float(sum(torch.dot(block, block) for block in map(Tensor.double, flat.split(_BLOCK))))


def total(values: Tensor, sample_weight: Tensor | None = None) -> float:
    """The sum over samples in float64, each counted with its weight."""
    return float(values.sum(dtype=torch.float64) if sample_weight is None else sample_weight @ values.double())


def per_sample(factors: Tensor, values: Tensor) -> Tensor:
    """values_n times factors_n, in the dtype and layout of values."""
    shape = (-1, *(1 for _ in values.shape[1:]))
    return values * factors.to(values.dtype).reshape(shape)


def weighted_mean(values: Tensor, sample_weight: Tensor | None) -> Tensor:
    """The mean over samples in float64, each counted with its weight."""
    if sample_weight is None:
        return values.mean(0, dtype=torch.float64)
    return (sample_weight @ values.double()) / sample_weight.sum()
