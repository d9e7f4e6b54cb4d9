"""The convolution link: nn.Conv2d without its bias. Section 4 of the paper, with any number of channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

from lysep.links.base import KroneckerMetric, Link
from lysep.links.fixed import FixedMap
from lysep.sums import weighted_mean

# Patches are unfolded this many numbers at a time. Two mebibytes in float64 stay in the cache: on 1,500 images this is
# three times as fast as 64 MiB at a time, and memory stays bounded.
_PATCH_NUMBERS = 2**18


@dataclass(frozen=True)
class ConvLink(Link):
    """Convolution with a kernel of shape (o, c, kernel height, kernel width), zeros around the border.

    `extra` is a last row and column of zeros that padding="same" adds for kernels of even extent.
    """

    fixed: FixedMap
    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    extra: tuple[int, int]
    device: torch.device

    def map(self, weight: Tensor, features: Tensor) -> Tensor:
        return F.conv2d(self._extend(features), weight, None, self.stride, self.padding, self.dilation)

    def adjoint(self, weight: Tensor, grad: Tensor) -> Tensor:
        height, width = self.fixed.out_shape[1:]
        shape = (grad.shape[0], self.in_channels, height + self.extra[0], width + self.extra[1])
        extended: Tensor = conv2d_input(shape, weight, grad, self.stride, self.padding, self.dilation)
        return extended[:, :, :height, :width]

    def add_bias(self, mapped: Tensor, bias: Tensor) -> Tensor:
        return mapped + bias[:, None, None]

    def mean(self, values: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        if sample_weight is None:
            return values.mean((0, 2, 3), dtype=torch.float64).to(values.dtype)
        return weighted_mean(values.mean((2, 3), dtype=torch.float64), sample_weight).to(values.dtype)

    def rows(self, features: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        numbers = self._patch_length * target.shape[2] * target.shape[3]
        step = max(1, _PATCH_NUMBERS // numbers)
        for v, b in zip(features.split(step), target.split(step), strict=True):
            patches = F.unfold(self._extend(v), self.kernel, self.dilation, self.padding, self.stride)
            yield (
                patches.transpose(0, 1).reshape(self._patch_length, -1).T.double(),
                b.transpose(0, 1).reshape(b.shape[1], -1).T.double(),
            )

    @cached_property
    def metric(self) -> KroneckerMetric:
        axes = [self._axis_metric(axis).to(self.device) for axis in (0, 1)]
        return KroneckerMetric(self.in_channels, axes[0], axes[1])

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels, *self.kernel)

    @cached_property
    def out_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        size = [self._outputs(axis) for axis in (0, 1)]
        return (self.out_channels, *size)

    def _axis_metric(self, axis: int) -> Tensor:
        """M[a, b] = Σ_p G[q(p, a), q(p, b)]: every place p where kernel entries a and b are used together.

        q(p, a) is the input that entry a meets at output p, G the Gram matrix of the pooling in front (the identity
        without one). A kernel entry that falls on the border's zeros is not used there, and is not counted.
        """
        inputs = self.fixed.out_shape[1 + axis]
        outputs = torch.arange(self._outputs(axis), device="cpu")[:, None]
        entries = torch.arange(self.kernel[axis], device="cpu")[None, :]
        q = outputs * self.stride[axis] + entries * self.dilation[axis] - self.padding[axis]
        used = (q[:, :, None] == torch.arange(inputs, device="cpu")).double()
        grams = self.fixed.axis_grams
        G = torch.eye(inputs, dtype=torch.float64, device="cpu") if grams is None else grams[axis]
        return torch.einsum("pai,ij,pbj->ab", used, G, used).contiguous()

    def _outputs(self, axis: int) -> int:
        padded = self.fixed.out_shape[1 + axis] + 2 * self.padding[axis] + self.extra[axis]
        return (padded - self.dilation[axis] * (self.kernel[axis] - 1) - 1) // self.stride[axis] + 1

    @property
    def _patch_length(self) -> int:
        return self.in_channels * self.kernel[0] * self.kernel[1]

    def _extend(self, features: Tensor) -> Tensor:
        return F.pad(features, (0, self.extra[1], 0, self.extra[0])) if any(self.extra) else features
