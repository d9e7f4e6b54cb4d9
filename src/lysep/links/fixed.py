"""The fixed linear operators between an activation and the next link: average pooling and flattening.

They are the P_l of the paper's Section 4. Average pooling acts on every channel alike and separates into its two
axes, P = I ⊗ P_y ⊗ P_x, with small one-dimensional matrices P_y and P_x. Whatever the method needs to know of P
beyond applying it (norms and ridges of K P) it reads off the factors of P Pᵀ, so no case of stride, padding,
overlap or rounded-up size is special.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Pool:
    """One average pooling, with PyTorch's own parameters."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor: int | None = None

    # On the CPU PyTorch's own takes two to four times as long as adding views, which gives the same bits.

    def apply(self, x: Tensor) -> Tensor:
        if self._views_suffice(x):
            first, *others = self._windows(x)
            total = first.clone(memory_format=torch.contiguous_format)
            for window in others:
                total += window
            return total.div_(self._divisor)
        return F.avg_pool2d(
            x, self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor
        )

    def adjoint(self, g: Tensor, like: Tensor) -> Tensor:
        """Pᵀ g; `like` only lends its shape."""
        if self._views_suffice(g):
            x, shares = g.new_zeros(like.shape), g / self._divisor
            for window in reversed(self._windows(x)):  # for every entry of x, the windows it is in from first to last
                window += shares
            return x
        return torch.ops.aten.avg_pool2d_backward(  # type: ignore[no-any-return]  # not typed
            g.contiguous(),
            like,
            self.kernel,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor,
        )

    @property
    def _divisor(self) -> int:
        return self.kernel[0] * self.kernel[1] if self.divisor is None else self.divisor

    def _views_suffice(self, x: Tensor) -> bool:
        return x.device.type == "cpu" and self.padding == (0, 0) and not self.ceil_mode

    def _windows(self, x: Tensor) -> list[Tensor]:
        """What every entry of the kernel meets."""
        views = x.unfold(-2, self.kernel[0], self.stride[0]).unfold(-2, self.kernel[1], self.stride[1])
        return [window for row in views.unbind(-2) for window in row.unbind(-1)]

    def axis(self, axis: int, size: int) -> Tensor:
        """The one-dimensional factor of P along one axis, outputs × inputs."""
        rows = F.avg_pool1d(
            torch.eye(size, dtype=torch.float64, device="cpu").unsqueeze(1),
            self.kernel[axis],
            self.stride[axis],
            self.padding[axis],
            self.ceil_mode,
            self.count_include_pad,
        ).squeeze(1)
        if self.divisor is not None:  # a given divisor replaces the window's area; share it between the axes
            rows = (rows != 0).double() / abs(self.divisor) ** 0.5  # only P Pᵀ is used: its sign is lost
        return rows.T


@dataclass(frozen=True)
class FixedMap:
    """Poolings, then perhaps a flattening. Shapes are those of one sample."""

    in_shape: tuple[int, ...]
    pools: tuple[Pool, ...] = ()
    flatten: bool = False

    def apply(self, x: Tensor) -> Tensor:
        for pool in self.pools:
            x = pool.apply(x)
        return x.flatten(1) if self.flatten else x

    def adjoint(self, g: Tensor) -> Tensor:
        if self.flatten:
            g = g.reshape(g.shape[0], *self.pooled_shape)
        for pool, shape in zip(reversed(self.pools), reversed(self._shapes[:-1]), strict=True):
            g = pool.adjoint(g, g.new_empty(()).expand(g.shape[0], *shape))
        return g

    @property
    def pooled_shape(self) -> tuple[int, ...]:
        return self._shapes[-1]

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        if not self.flatten:
            return self.pooled_shape
        return (int(torch.Size(self.pooled_shape).numel()),)

    @cached_property
    def axis_grams(self) -> tuple[Tensor, Tensor] | None:
        """The factors G_y and G_x of P Pᵀ = I ⊗ G_y ⊗ G_x (float64, CPU); None where P only reshapes."""
        if not self.pools:
            return None
        grams = []
        for axis in (0, 1):
            P = torch.eye(self.in_shape[1 + axis], dtype=torch.float64, device="cpu")
            for pool, shape in zip(self.pools, self._shapes[:-1], strict=True):
                P = pool.axis(axis, shape[1 + axis]) @ P
            grams.append(P @ P.T)
        return grams[0], grams[1]

    @cached_property
    def _shapes(self) -> list[tuple[int, ...]]:
        """Shape before the first pooling, after the first, and so on."""
        x = torch.empty(1, *self.in_shape, device="meta")
        shapes = [self.in_shape]
        for pool in self.pools:
            x = pool.apply(x)
            shapes.append(tuple(x.shape[1:]))
        return shapes
