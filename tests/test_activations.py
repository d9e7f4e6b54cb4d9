import pytest
import torch
from torch import nn

from lysep import activations

MODULES = [
    nn.Tanh(),
    nn.Sigmoid(),
    nn.ReLU(),
    nn.LeakyReLU(),
    nn.LeakyReLU(-1.5),
    nn.ELU(),
    nn.ELU(2.0),
    nn.SiLU(),
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.Softplus(),
    nn.Softplus(beta=3.0, threshold=25.0),
]
GRID = torch.linspace(-30.0, 30.0, 600_002, dtype=torch.float64)  # zero, where ReLU has no derivative, is not on it


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_value_and_derivative_are_those_of_the_module(module):
    activation = activations.from_module(module)
    c = GRID.clone().requires_grad_()
    v = module(c)
    (slope,) = torch.autograd.grad(v.sum(), c)
    torch.testing.assert_close(activation.value(GRID), v.detach(), rtol=0, atol=0)
    torch.testing.assert_close(activation.derivative(GRID, v.detach()), slope, rtol=1e-12, atol=1e-13)
    upstream = torch.sin(GRID)
    pulled = activation.pull_back(GRID, v.detach(), upstream.clone())
    torch.testing.assert_close(pulled, slope * upstream, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_lipschitz_constant_holds_and_is_tight(module):
    steepest = (module(GRID).diff() / GRID.diff()).abs().max()
    B = activations.from_module(module).lipschitz
    assert steepest <= B * (1 + 1e-9)
    assert steepest >= B * (1 - 1e-3)  # ELU is steepest at 0, which is not on the grid


@pytest.mark.parametrize("module", [nn.Tanh(), nn.Sigmoid()], ids=str)
def test_bounds_of_lemma_3_3_hold_and_are_tight(module):
    bounds = activations.from_module(module).bounds
    c = GRID.clone().requires_grad_()
    v = module(c)
    (first,) = torch.autograd.grad(v.sum(), c, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), c)
    for found, claimed in ((v, bounds.value), (first, bounds.derivative), (second, bounds.second)):
        assert claimed * (1 - 1e-6) <= found.abs().max() <= claimed * (1 + 1e-12)


@pytest.mark.parametrize("module", [nn.PReLU(), nn.Hardtanh(), nn.Softplus(threshold=1.0)], ids=str)
def test_others_are_not_known(module):
    assert activations.from_module(module) is None
