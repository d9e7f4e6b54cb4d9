"""Arithmetic that repeats and that a gap can be computed in, whatever PyTorch is set to at the moment.

On CUDA, PyTorch lets convolutions run in TF32 (ten bits) and in whatever order is fastest. A gap is a difference of
nearly equal numbers, and the same seed has to give the same bits, so while we compute neither is allowed. The settings
are put back on the way out; on the CPU nothing is touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.backends import cuda, cudnn

_conv: Any = cudnn.conv  # type: ignore[attr-defined]  # there since PyTorch 2.9, not yet in its type stubs


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Full precision and a fixed order of summation for computations on a device."""
    if device.type != "cuda":
        yield
        return
    before = (_conv.fp32_precision, cuda.matmul.fp32_precision, cudnn.deterministic, cudnn.benchmark)
    _set("ieee", "ieee", True, False)
    try:
        yield
    finally:
        _set(*before)


def _set(convolutions: str, products: str, deterministic: bool, benchmark: bool) -> None:
    _conv.fp32_precision = convolutions
    cuda.matmul.fp32_precision = products
    cudnn.deterministic, cudnn.benchmark = deterministic, benchmark
