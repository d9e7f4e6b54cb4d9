"""The explicit matrices agree with PyTorch, or nothing compared with them means anything."""

import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn import functional as F

from architectures import problems
from references import columns, layers_of, terms


@given(problems())
def test_dense_reference_computes_the_networks_logits(problem):
    layers = layers_of(problem.model, problem.X.shape[1:])
    modules = [m for m in problem.model if isinstance(m, nn.Linear | nn.Conv2d)]
    aux, c = [], columns(problem.X)
    for layer, m in zip(layers, modules, strict=True):
        c = layer.kernel_matrix(m.weight) @ layer.features(c)
        c = c if m.bias is None else c + layer.bias_column(m.bias, len(c))
        aux.append(c)
    t = terms(layers, [m.weight for m in modules], [m.bias for m in modules], aux[:-1], problem.X, problem.y)
    expected = problem.model(problem.X)
    torch.testing.assert_close(t.logits.T, expected)
    torch.testing.assert_close(t.head, F.cross_entropy(expected, problem.y, reduction="none").square().sum())


@pytest.mark.parametrize("kernel", [2, 3])
def test_same_padding_is_asymmetric_for_even_kernels(kernel):
    conv = nn.Conv2d(1, 1, kernel, padding="same").double()
    X = torch.randn(2, 1, 5, 4, dtype=torch.float64)
    (layer,) = layers_of(nn.Sequential(conv), X.shape[1:])
    flat = layer.kernel_matrix(conv.weight) @ columns(X) + conv.bias
    torch.testing.assert_close(flat.T.reshape(2, 1, 5, 4), conv(X))
