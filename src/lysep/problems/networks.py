"""The fully connected networks of the paper, and how they start.

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
) -> nn.Sequential:
    """Dense layers from sizes[0] features over hidden layers to sizes[-1] classes; a head without bias."""
    if start not in _STARTS:
        raise ValueError(f"start={start!r} is unknown. Use one of {', '.join(map(repr, _STARTS))}.")
    generator = torch.Generator(device="cpu").manual_seed(seed)
    modules: list[nn.Module] = []
    for l, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        head = l == len(sizes) - 2
        # skip_init: nothing is drawn from the global generator
        layer = skip_init(nn.Linear, fan_in, fan_out, bias=not head, dtype=dtype, device="cpu")
        half_widths = _STARTS[start](2 if head else min(l, 1), fan_in, fan_out)
        with torch.no_grad():
            for parameter, half_width in zip(layer.parameters(), half_widths, strict=False):
                drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64, device="cpu")
                parameter.copy_((2.0 * drawn - 1.0) * half_width)
        modules += [layer] if head else [layer, activation()]
    return nn.Sequential(*modules)
