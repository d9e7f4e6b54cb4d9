"""Random networks and data for the property tests, small enough for the explicit matrices of references.py."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import nn

ACTIVATIONS = (
    nn.Tanh,
    nn.Sigmoid,
    nn.ReLU,
    lambda: nn.LeakyReLU(0.2),
    lambda: nn.ELU(1.3),
    nn.SiLU,
    nn.GELU,
    lambda: nn.GELU(approximate="tanh"),
    lambda: nn.Softplus(2.0),
)


@dataclass
class Problem:
    model: nn.Sequential
    X: torch.Tensor
    y: torch.Tensor

    def __repr__(self):
        return f"Problem({self.model}, X {tuple(self.X.shape)}, classes {self.y.tolist()})"


@st.composite
def problems(draw, images=None, dtype=torch.float64, min_samples=4, max_samples=12):
    """A model of one to four hidden layers with data that fits it."""
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    images = draw(st.booleans()) if images is None else images
    samples = draw(st.integers(min_samples, max_samples))
    classes = draw(st.integers(2, 4))
    modules: list[nn.Module] = []
    if images:
        shape = (draw(st.integers(1, 2)), draw(st.integers(4, 6)), draw(st.integers(4, 6)))
        in_shape = shape
        for _ in range(draw(st.integers(1, 2))):
            conv, shape = draw(_conv(shape))
            modules += [conv, draw(_activation())]
            if draw(st.booleans()) and min(shape[1:]) >= 2:
                pool, shape = draw(_pool(shape))
                modules.append(pool)
        modules.append(nn.Flatten())
        width = shape[0] * shape[1] * shape[2]
        dense = draw(st.integers(0, 2))
    else:
        width = draw(st.integers(1, 4))
        in_shape = (width,)
        dense = draw(st.integers(1, 4))
    for _ in range(dense):
        wider = draw(st.integers(1, 5))
        modules += [nn.Linear(width, wider, bias=draw(st.booleans())), draw(_activation())]
        width = wider
    modules.append(nn.Linear(width, classes, bias=draw(st.booleans())))
    model = nn.Sequential(*modules).to(dtype)
    scale = draw(st.sampled_from([0.3, 1.0, 3.0]))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator, dtype=torch.float64) / p[0].numel() ** 0.5)
    X = torch.randn(samples, *in_shape, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(0, classes, (samples,), generator=generator)
    y[:2] = torch.tensor([0, 1])
    return Problem(model, X, y)


@st.composite
def _activation(draw):
    return draw(st.sampled_from(ACTIVATIONS))()


@st.composite
def _conv(draw, shape):
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    if draw(st.booleans()):
        padding = draw(st.sampled_from(["same", "valid"]))
        stride = (1, 1)
    else:
        padding = (draw(st.integers(0, 1)), draw(st.integers(0, 1)))
        stride = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    dilation = (draw(st.integers(1, 2)) if kernel[0] < 3 else 1, 1)
    conv = nn.Conv2d(shape[0], draw(st.integers(1, 2)), kernel, stride, padding, dilation, bias=draw(st.booleans()))
    out = conv(torch.zeros(1, *shape)).shape[1:] if _fits(conv, shape) else None
    if out is None:
        conv = nn.Conv2d(shape[0], 1, 1)
        out = (1, *shape[1:])
    return conv, tuple(out)


def _fits(conv, shape):
    try:
        return min(conv(torch.zeros(1, *shape)).shape) > 0
    except RuntimeError:
        return False


@st.composite
def _pool(draw, shape):
    """Disjoint and overlapping windows, borders, rounding up, all ways to count."""
    kernel = (2, draw(st.integers(1, 2)))
    if draw(st.booleans()):
        pool = nn.AvgPool2d(kernel)
    else:
        pool = nn.AvgPool2d(
            kernel,
            stride=(draw(st.integers(1, 2)), 1),
            padding=(draw(st.integers(0, 1)), 0),
            ceil_mode=draw(st.booleans()),
            count_include_pad=draw(st.booleans()),
            divisor_override=draw(st.sampled_from([None, 3])),
        )
    return pool, tuple(pool(torch.zeros(1, *shape)).shape[1:])


def perturbed_aux(state, generator, scale=0.3):
    """Auxiliary variables that are not consistent, so that every gap and every ridge is at work."""
    return [c + scale * torch.randn(c.shape, generator=generator, dtype=torch.float64).to(c.dtype) for c in state.aux]
