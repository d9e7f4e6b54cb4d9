"""The convolution link: nn.Conv2d without its bias. Section 4 of the paper, with any number of channels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from lysep.links.base import KroneckerMetric, Link
from lysep.links.fixed import FixedMap
from lysep.sums import weighted_mean

# Patches are copied out this many numbers at a time. Two mebibytes in float64 stay in a CPU's cache: on 1,500 images
# this is three times as fast as 64 MiB at a time. A GPU wants few large kernels instead. Memory stays bounded.
_PATCH_NUMBERS, _PATCH_NUMBERS_GPU = 2**18, 2**25


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

    # Map and adjoint are matrix products with patches: on the CPU PyTorch's own convolution takes three to five times
    # as long in float64, which its fast library does not know, and with one input channel in float32 too.

    def map(self, weight: Tensor, features: Tensor) -> Tensor:
        outputs = features.new_empty(len(features), *self.out_shape)
        for v, out in self._blocks(features, outputs):
            patches = self._patches(v).reshape(self._patch_length, -1)
            products = weight.reshape(self.out_channels, -1) @ patches
            out.copy_(products.reshape(self.out_channels, len(v), *self.out_shape[1:]).transpose(0, 1))
        return outputs

    def adjoint(self, weight: Tensor, grad: Tensor) -> Tensor:
        features = grad.new_empty(len(grad), *self.fixed.out_shape)
        for v, g in self._blocks(features, grad):
            shares = weight.reshape(self.out_channels, -1).T @ g.transpose(0, 1).reshape(self.out_channels, -1)
            shares = shares.reshape(self.in_channels, *self.kernel, len(v), *self.out_shape[1:])
            padded = self._padded(torch.zeros_like(v))
            for y, x in itertools.product(*map(range, self.kernel)):  # one entry of a patch never meets a pixel twice
                self._windows(padded, y, x).add_(shares[:, y, x])
            (top, left), (_, height, width) = self.padding, self.fixed.out_shape
            v.copy_(padded[:, :, top : top + height, left : left + width].transpose(0, 1))
        return features

    def add_bias(self, mapped: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.add(mapped, bias[:, None, None], out=out)

    def mean(self, values: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        if sample_weight is None:
            return values.mean((0, 2, 3), dtype=torch.float64).to(values.dtype)
        return weighted_mean(values.mean((2, 3), dtype=torch.float64), sample_weight).to(values.dtype)

    def rows(self, features: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        for v, b in self._blocks(features, target):
            patches = self._patches(v.double()).reshape(self._patch_length, -1)
            yield patches.T, b.double().transpose(0, 1).reshape(b.shape[1], -1).T

    def effects(self, features: Tensor, grad: Tensor, steps: Tensor, bias: bool) -> Tensor:
        """All steps in one product, so that patches are copied out once."""
        D = steps.flatten(0, 1)
        effects = []
        for v, g in self._blocks(features, grad):
            patches = self._patches(v).reshape(self._patch_length, -1)
            changes = torch.addmm(D[:, -1:], D[:, :-1], patches) if bias else D @ patches
            changes = changes.reshape(len(steps), self.out_channels, len(v), -1)
            effects.append(changes.mul_(g.flatten(2).transpose(0, 1)).sum((1, 3)))
        return torch.cat(effects, 1)

    @cached_property
    def metric(self) -> KroneckerMetric:
        axes = [self._axis_metric(axis).to(self.device) for axis in (0, 1)]
        return KroneckerMetric(self.in_channels, axes[0], axes[1])

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels, *self.kernel)

    @cached_property
    def out_shape(self) -> tuple[int, ...]:  # type: ignore[override]  # read only
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

    def _blocks(self, features: Tensor, outputs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and outputs of so many samples that their patches are of a good size."""
        numbers = _PATCH_NUMBERS if features.device.type == "cpu" else _PATCH_NUMBERS_GPU
        step = max(1, numbers // (self._patch_length * self.out_shape[1] * self.out_shape[2]))
        return zip(features.split(step), outputs.split(step), strict=True)

    def _padded(self, features: Tensor) -> Tensor:
        """Channels first, zeros around the border."""
        (y, x), (below, right) = self.padding, self.extra
        return F.pad(features.transpose(0, 1), (x, x + right, y, y + below)).contiguous()

    def _windows(self, padded: Tensor, y: int, x: int) -> Tensor:
        """What entry (y, x) of the kernel meets, c × n × output positions: a view."""
        (down, across), (height, width) = self.stride, self.out_shape[1:]
        top, left = y * self.dilation[0], x * self.dilation[1]
        rows = slice(top, top + down * (height - 1) + 1, down)
        return padded[:, :, rows, left : left + across * (width - 1) + 1 : across]

    def _patches(self, features: Tensor) -> Tensor:
        """What every entry of the kernel meets, c × kernel × n × output positions: a view of the padded features."""
        padded = self._padded(features)
        c, n, y, x = padded.stride()
        return padded.as_strided(
            (self.in_channels, *self.kernel, len(features), *self.out_shape[1:]),
            (c, y * self.dilation[0], x * self.dilation[1], n, y * self.stride[0], x * self.stride[1]),
        )
