"""Arithmetic that repeats and that a gap can be computed in, whatever PyTorch is set to at the moment.

PyTorch can be told to round products to eight or ten bits (autocast, TF32, bfloat16 on some CPUs), and on CUDA to sum
in whatever order is fastest. A gap is a difference of nearly equal numbers, and the same seed has to give the same
bits, so while we compute nothing of that is allowed. The settings are put back on the way out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.backends import cuda, cudnn, mkldnn

# Settings and what they have to be. The type stubs do not know the per-operator ones, which came with PyTorch 2.9.
_BACKENDS: Any = (cudnn, cuda, mkldnn)


def _settings() -> list[tuple[Any, str, object]]:
    cudnn_, cuda_, mkldnn_ = _BACKENDS
    return [
        (mkldnn_.matmul, "fp32_precision", "ieee"),
        (mkldnn_.conv, "fp32_precision", "ieee"),
        (cuda_.matmul, "fp32_precision", "ieee"),
        (cudnn_.conv, "fp32_precision", "ieee"),
        (cudnn_, "deterministic", True),
        (cudnn_, "benchmark", False),
    ]


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Full precision and a fixed order of summation for computations on a device."""
    settings = _settings()
    before = [getattr(owner, name) for owner, name, _ in settings]
    with torch.autocast(device.type, enabled=False):
        try:
            for owner, name, value in settings:
                setattr(owner, name, value)
            yield
        finally:
            for (owner, name, _), value in zip(settings, before, strict=True):
                setattr(owner, name, value)
