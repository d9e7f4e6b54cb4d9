"""Pointwise activations: value, derivative, Lipschitz constant and, where they exist, bounds.

An activation is looked up from the PyTorch module it stands for, so that the numbers that the theorems need
(B in Theorems 3.1 and 4.1; M0, M1, M2 in Lemma 3.3) are known and not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Bounds:
    """Suprema of |σ|, |σ'| and |σ''|: the M0, M1, M2 of Lemma 3.3."""

    value: float
    derivative: float
    second: float


@dataclass(frozen=True)
class Activation:
    """A pointwise function σ.

    `derivative(c, v)` gets the argument c and the value v = σ(c): some derivatives are cheaper in v.
    `lipschitz` is a constant B with |σ(a) − σ(b)| ≤ B |a − b|, rounded up where it is not exact.
    `bounds` is None where σ, σ' or σ'' is unbounded or does not exist (ReLU and its relatives).
    `backward(g, v)` is σ'(c)·g in place of g and in a single pass over memory, where PyTorch has one.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor, Tensor], Tensor]
    lipschitz: float
    bounds: Bounds | None = None
    backward: Callable[[Tensor, Tensor], Tensor] | None = None

    def pull_back(self, c: Tensor, v: Tensor, grad: Tensor) -> Tensor:
        """σ'(c)·grad, perhaps in place of grad."""
        return self.derivative(c, v).mul_(grad) if self.backward is None else self.backward(grad, v)


# Functions have names, not lambdas: a State, which holds its network, can then be pickled.


def _identity(c: Tensor) -> Tensor:
    return c


def _identity_derivative(c: Tensor, v: Tensor) -> Tensor:
    return torch.ones_like(c)


def _tanh_derivative(c: Tensor, v: Tensor) -> Tensor:
    return torch.addcmul(v.new_ones(()), v, v, value=-1.0)


def _tanh_backward(grad: Tensor, v: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward.grad_input(grad, v, grad_input=grad)  # type: ignore[no-any-return]  # not typed


def _sigmoid_derivative(c: Tensor, v: Tensor) -> Tensor:
    return v * (1.0 - v)


def _relu_derivative(c: Tensor, v: Tensor) -> Tensor:
    return (c > 0).to(c.dtype)


def _leaky_relu_derivative(c: Tensor, v: Tensor, slope: float) -> Tensor:
    return torch.where(c > 0, torch.ones_like(c), slope)


def _elu_derivative(c: Tensor, v: Tensor, alpha: float) -> Tensor:
    return torch.where(c > 0, torch.ones_like(c), alpha * torch.exp(c.clamp(max=0.0)))


def _silu_derivative(c: Tensor, v: Tensor) -> Tensor:
    s = torch.sigmoid(c)
    return s * (1.0 + c * (1.0 - s))


def _softplus_derivative(c: Tensor, v: Tensor, beta: float, threshold: float) -> Tensor:
    return torch.where(beta * c > threshold, torch.ones_like(c), torch.sigmoid(beta * c))


def _gelu_derivative(c: Tensor, v: Tensor) -> Tensor:
    cdf = 0.5 * torch.erfc(-c / math.sqrt(2.0))
    return cdf + c * torch.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi)


def _gelu_tanh_derivative(c: Tensor, v: Tensor) -> Tensor:
    k, a = math.sqrt(2.0 / math.pi), 0.044715
    t = torch.tanh(k * (c + a * c**3))
    return 0.5 * (1.0 + t) + 0.5 * c * (1.0 - t * t) * k * (1.0 + 3.0 * a * c * c)


IDENTITY = Activation("Identity", _identity, _identity_derivative, 1.0)
_TANH = Activation(
    "Tanh", torch.tanh, _tanh_derivative, 1.0, Bounds(1.0, 1.0, 4.0 / (3.0 * math.sqrt(3.0))), _tanh_backward
)
_SIGMOID = Activation(
    "Sigmoid", torch.sigmoid, _sigmoid_derivative, 0.25, Bounds(1.0, 0.25, 1.0 / (6.0 * math.sqrt(3.0)))
)
_RELU = Activation("ReLU", torch.relu, _relu_derivative, 1.0)

# The largest σ' of SiLU lies at x = 2.39936, of the exact GELU at x = √2, of the tanh GELU at x = 1.41850; rounded up.
_SILU = Activation("SiLU", F.silu, _silu_derivative, 1.0998394)
_GELU = Activation("GELU", F.gelu, _gelu_derivative, 1.1289043)
_GELU_TANH = Activation("GELU(tanh)", partial(F.gelu, approximate="tanh"), _gelu_tanh_derivative, 1.1289931)


def _leaky_relu(slope: float) -> Activation:
    return Activation(
        f"LeakyReLU({slope:g})",
        partial(F.leaky_relu, negative_slope=slope),
        partial(_leaky_relu_derivative, slope=slope),
        max(1.0, abs(slope)),
    )


def _elu(alpha: float) -> Activation:
    return Activation(
        f"ELU({alpha:g})", partial(F.elu, alpha=alpha), partial(_elu_derivative, alpha=alpha), max(1.0, abs(alpha))
    )


def _softplus(beta: float, threshold: float) -> Activation | None:
    # PyTorch replaces softplus by the identity where beta·c exceeds the threshold, with a jump of
    # log(1 + e^-threshold) / beta: 2e-9 by default. Where it is felt, no Lipschitz constant holds.
    if threshold < 20.0 or beta < 0.01:
        return None
    return Activation(
        f"Softplus({beta:g})",
        partial(F.softplus, beta=beta, threshold=threshold),
        partial(_softplus_derivative, beta=beta, threshold=threshold),
        1.0,
    )


_FROM_MODULE: dict[type[nn.Module], Callable[..., Activation | None]] = {
    nn.Tanh: lambda m: _TANH,
    nn.Sigmoid: lambda m: _SIGMOID,
    nn.ReLU: lambda m: _RELU,
    nn.LeakyReLU: lambda m: _leaky_relu(m.negative_slope),
    nn.ELU: lambda m: _elu(m.alpha),
    nn.SiLU: lambda m: _SILU,
    nn.GELU: lambda m: _GELU if m.approximate == "none" else _GELU_TANH,
    nn.Softplus: lambda m: _softplus(float(m.beta), float(m.threshold)),
}

SUPPORTED = tuple(sorted(cls.__name__ for cls in _FROM_MODULE))


def from_module(module: nn.Module) -> Activation | None:
    """The activation that a PyTorch module stands for, or None if it is not one we know."""
    factory = _FROM_MODULE.get(type(module))
    return None if factory is None else factory(module)
