"""Networks to train, from what a person says of them: the widths of the hidden layers, or a function that makes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from lysep.parameters import COUNT, is_integer
from lysep.problems.networks import chain

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
}

_MOST_PARAMETERS = 2**28  # two gibibytes in float64; beyond, a size is more likely mistyped than meant


def dense(hidden: int | Sequence[int], activation: str, n_features: int, n_classes: int, seed: int) -> nn.Sequential:
    """A chain of dense layers in float64, as PyTorch makes and starts them: with biases, in the head too."""
    sizes = [n_features, *_widths(hidden), n_classes]
    parameters = sum(a * b for a, b in pairwise(sizes))
    if parameters > _MOST_PARAMETERS:
        raise ValueError(
            f"hidden_layer_sizes would make a network of {parameters:,} weights. Use fewer or narrower layers."
        )
    return chain(sizes, activation=ACTIVATIONS[activation], start="pytorch", seed=seed, head_bias=True)


def by_factory(
    network: Callable[..., nn.Module], sample_shape: tuple[int, ...], n_classes: int, seed: int
) -> nn.Module:
    """What the function returns, called with `sample_shape` and `n_classes` if it has parameters of these names."""
    offered: dict[str, Any] = {"sample_shape": sample_shape, "n_classes": n_classes}
    known = inspect.signature(network).parameters
    # A factory draws from the global generator, as PyTorch's layers do. It is put back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = network(**{name: value for name, value in offered.items() if name in known})
    if not isinstance(model, nn.Module):
        raise ValueError(f"network must return an nn.Sequential, but returned a {type(model).__name__}.")
    return model


def is_sizes(value: Any) -> bool:
    if is_integer(value):
        return COUNT.holds(value)
    return isinstance(value, Sequence | np.ndarray) and len(value) > 0 and all(COUNT.holds(size) for size in value)


def _widths(hidden: int | Sequence[int]) -> list[int]:
    return [hidden] if isinstance(hidden, int) else [int(size) for size in np.atleast_1d(hidden)]
