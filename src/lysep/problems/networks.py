"""The networks of the paper, fully connected and convolutional, and how they start.

All starts are uniform and scaled by the fan-in, as in PyTorch. "separation" differs from PyTorch's own in three ways,
each found by trial on the circle problem (docs/start.md):

- Small first weights with larger biases. The weights ω_l are products of squared norms: large weights anywhere hold the
  layers below them fixed, biases cost nothing. And with zero biases and an odd activation every hidden feature is odd
  in x, and stays so: an even function such as the circle's could not be learned at all.
- Hidden weights that neither contract (features behind many layers become constant) nor saturate.
- A small head, so that the links below it can move far before its norm, which multiplies every ω, has grown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import nn
from torch.nn.utils import skip_init

Start = Literal["separation", "pytorch", "xavier"]

# (place: 0 first, 1 hidden, 2 head; fan-in; fan-out) to the half-widths of the uniform distributions of weights, biases
_STARTS: dict[str, Callable[[int, int, int], tuple[float, float]]] = {
    "separation": lambda place, i, o: ((0.3, 1.3, 0.1)[place] / math.sqrt(i), (1.0, 0.3, 0.0)[place]),
    "pytorch": lambda place, i, o: (1.0 / math.sqrt(i), 1.0 / math.sqrt(i)),
    "xavier": lambda place, i, o: (math.sqrt(6.0 / (i + o)), 1.0 / math.sqrt(i)),
}

# The paper pools behind every convolution, and keeps "the feature dimensions at the input to the fully connected layers
# consistent" for two, three and four of them; how, it does not say, and pooling 28 × 28 pixels four times leaves 1 × 1.
# Here the convolutions keep the size (padding 1), the first two have a pooling behind them, and P_l is the identity
# behind the others: the dense part gets 7 × 7 × C whatever L_1 is.
_POOLED = 2


def fnn(
    depth: int,
    width: int,
    *,
    inputs: int = 2,
    classes: int = 2,
    activation: type[nn.Module] = nn.Tanh,
    start: Start = "separation",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> nn.Sequential:
    """The network (L, M) = (depth, width) of eq. (3.1): depth − 1 hidden layers and a head without bias."""
    return chain([inputs, *[width] * (depth - 1), classes], activation=activation, start=start, seed=seed, dtype=dtype)


def chain(
    sizes: Sequence[int],
    *,
    activation: type[nn.Module] = nn.Tanh,
    start: Start = "separation",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    head_bias: bool = False,
) -> nn.Sequential:
    """Dense layers from sizes[0] features over hidden layers to sizes[-1] classes."""
    draw = _Drawing(start, seed, dtype)
    modules: list[nn.Module] = []
    for l, (fan_in, fan_out) in enumerate(pairwise(sizes[:-1])):
        modules += [draw.layer(min(l, 1), nn.Linear, fan_in, fan_out), activation()]
    return nn.Sequential(*modules, draw.layer(2, nn.Linear, sizes[-2], sizes[-1], bias=head_bias))


def cnn(
    convolutions: int,
    channels: int,
    *,
    image: tuple[int, int, int] = (1, 28, 28),
    classes: int = 10,
    hidden: int = 50,
    activation: type[nn.Module] = nn.Tanh,
    start: Start = "separation",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> nn.Sequential:
    """The network (L_1, C) = (convolutions, channels) of Table 5.3: eq. (4.1) with a hidden dense layer and a head.

    Kernels are 3 × 3 with stride 1 and pooling is over 2 × 2, as printed. The dense part gets images of a quarter of
    the height and width, 7 × 7 × C for MNIST, however many convolutions there are.
    """
    draw = _Drawing(start, seed, dtype)
    incoming, height, width = image
    modules: list[nn.Module] = []
    for l in range(convolutions):
        modules += [draw.layer(min(l, 1), nn.Conv2d, incoming, channels, kernel_size=3, padding=1), activation()]
        if l < _POOLED:
            modules.append(nn.AvgPool2d(2))
            height, width = height // 2, width // 2
        incoming = channels
    modules += [nn.Flatten(), draw.layer(1, nn.Linear, channels * height * width, hidden), activation()]
    return nn.Sequential(*modules, draw.layer(2, nn.Linear, hidden, classes, bias=False))


class _Drawing:
    """Layers with their start, drawn one after the other from a generator of their own."""

    def __init__(self, start: str, seed: int, dtype: torch.dtype) -> None:
        if start not in _STARTS:
            raise ValueError(f"start={start!r} is unknown. Use one of {', '.join(map(repr, _STARTS))}.")
        self._half_widths, self._dtype = _STARTS[start], dtype
        self._generator = torch.Generator(device="cpu").manual_seed(seed)

    def layer(self, place: int, kind: type[nn.Linear | nn.Conv2d], *sizes: int, **options: int) -> nn.Module:
        # skip_init: nothing is drawn from the global generator
        layer: nn.Linear | nn.Conv2d = skip_init(kind, *sizes, **options, dtype=self._dtype, device="cpu")
        outgoing, incoming = layer.weight.shape[:2]
        entries = layer.weight[0, 0].numel()  # of a kernel; 1 in a dense layer
        half_widths = self._half_widths(place, incoming * entries, outgoing * entries)
        with torch.no_grad():
            for parameter, half_width in zip(layer.parameters(), half_widths, strict=False):
                drawn = torch.rand(parameter.shape, generator=self._generator, dtype=torch.float64, device="cpu")
                parameter.copy_((2.0 * drawn - 1.0) * half_width)
        return layer
