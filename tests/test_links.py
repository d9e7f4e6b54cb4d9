"""Links against explicit matrices: map, adjoint, norms, least squares."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from architectures import problems
from lysep.links import DenseLink, FixedMap
from lysep.links.fixed import Pool
from lysep.network import linear_modules, parse
from references import columns, layers_of


def links_with_references(problem):
    network = parse(problem.model, tuple(problem.X.shape[1:]))
    references = layers_of(problem.model, problem.X.shape[1:])
    weights = [m.weight.detach() for m in linear_modules(problem.model)]
    return zip(network.layers, references, weights, strict=True)


def random_active(layer, samples, generator):
    """What comes out of the activation in front of a layer."""
    return torch.randn(samples, *layer.link.fixed.in_shape, generator=generator, dtype=torch.float64)


@given(problems(), st.integers(0, 99))
def test_map_and_pull_back_are_the_matrix_and_its_transpose(problem, seed):
    generator = torch.Generator().manual_seed(seed)
    for layer, reference, W in links_with_references(problem):
        link = layer.link
        active = random_active(layer, 3, generator)
        K = reference.kernel_matrix(W) @ reference.pooling
        mapped = link.map(W, layer.features(active))
        torch.testing.assert_close(columns(mapped), K @ columns(active))
        assert tuple(mapped.shape[1:]) == link.out_shape
        grad = torch.randn(mapped.shape, generator=generator, dtype=torch.float64)
        pulled = link.pull_back(W, grad)
        assert pulled.shape == active.shape
        torch.testing.assert_close(columns(pulled), K.T @ columns(grad))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kernel", "stride"), [((2, 2), (2, 2)), ((3, 2), (1, 3)), ((2, 3), (3, 1)), ((1, 1), (2, 1))])
@pytest.mark.parametrize("divisor", [None, -3])
def test_pooling_has_the_bits_of_pytorch(dtype, kernel, stride, divisor):
    generator = torch.Generator().manual_seed(2)
    pool = Pool(kernel, stride, divisor=divisor)
    x = torch.randn(3, 2, 9, 11, generator=generator, dtype=dtype).requires_grad_()
    theirs = F.avg_pool2d(x, kernel, stride, divisor_override=divisor)
    assert torch.equal(pool.apply(x.detach()), theirs)
    grad = torch.randn(theirs.shape, generator=generator, dtype=dtype)
    assert torch.equal(pool.adjoint(grad, x), torch.autograd.grad(theirs, x, grad)[0])


@given(problems())
def test_squared_norm_is_that_of_the_explicit_matrix(problem):
    for layer, reference, W in links_with_references(problem):
        K = reference.kernel_matrix(W) @ reference.pooling
        assert layer.link.squared_norm(W) == pytest.approx(float((K**2).sum()), rel=1e-12)


@given(problems())
def test_metric_and_its_root_give_the_same_form(problem):
    for layer, _, W in links_with_references(problem):
        metric = layer.link.metric
        w = W.reshape(len(W), -1)
        torch.testing.assert_close(metric.root.T @ metric.root, metric.matrix, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(metric.apply(W).reshape(len(W), -1), w @ metric.matrix)
        assert metric.largest == pytest.approx(float(torch.linalg.eigvalsh(metric.matrix)[-1]))


@given(problems(), st.integers(0, 99), st.sampled_from([0.0, 1e-6, 1.0, 50.0]))
def test_solution_is_that_of_the_explicit_stacked_system(problem, seed, ridge):
    """Eq. (4.5): K [U, sqrt(λ) P] = [B, 0], as one dense least-squares problem in the kernel's entries."""
    generator = torch.Generator().manual_seed(seed)
    for layer, reference, W in links_with_references(problem):
        link = layer.link
        active = random_active(layer, 7, generator)
        features = layer.features(active)
        target = torch.randn(7, *link.out_shape, generator=generator, dtype=torch.float64)
        solved = link.solve(features, link.map(W, features) - target, ridge, W)

        def rows(kernel, reference=reference, active=active, ridge=ridge):
            K = reference.kernel_matrix(kernel)
            fit = K @ reference.pooling @ columns(active)
            return torch.cat([fit.reshape(-1), ridge**0.5 * (K @ reference.pooling).reshape(-1)])

        basis = torch.eye(W.numel(), dtype=torch.float64).reshape(W.numel(), *W.shape)
        A = torch.stack([rows(kernel) for kernel in basis], dim=1)
        b = torch.cat([columns(target).reshape(-1), torch.zeros(len(A) - target.numel(), dtype=torch.float64)])
        best = torch.linalg.lstsq(A, b, driver="gelsd").solution
        ours = solved.reshape(-1)
        gradient = A.T @ (A @ ours - b)
        assert float(gradient.abs().max()) <= 1e-9 * float(A.norm() * b.norm())
        assert float((A @ ours - b).norm()) <= float((A @ best - b).norm()) * (1 + 1e-10) + 1e-12


def dense(inputs, outputs):
    return DenseLink(FixedMap((inputs,)), inputs, outputs, torch.device("cpu"))


@pytest.mark.parametrize("smallest", [1e-3, 1e-6, 1e-9, 1e-12])
def test_nearly_collinear_features_are_solved_as_well_as_by_an_orthogonal_factorization(smallest):
    """Features with singular values from 1 down to 1e-12, and a target that lives in the last of them.

    The solution has norm 1/smallest, so storing it alone moves V W by ε/smallest: no method can be asked for more.
    Normal equations would be off by ε/smallest², which is everything from 1e-9 on.
    """
    generator = torch.Generator().manual_seed(1)
    Q = torch.linalg.qr(torch.randn(200, 6, generator=generator, dtype=torch.float64)).Q
    U = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    s = torch.logspace(0, torch.tensor(smallest).log10().item(), 6, dtype=torch.float64)
    V = (Q * s) @ U.T
    target = Q[:, -1:] + 0.1 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    W = dense(6, 1).solve(V, -target, 0.0, torch.zeros(1, 6, dtype=torch.float64))
    best = torch.linalg.lstsq(V, target, driver="gelsd", rcond=1e-15).solution
    lost = float((V @ W.T - target).norm() - (V @ best - target).norm())
    assert lost <= torch.finfo(torch.float64).eps / smallest * float(target.norm())


@pytest.mark.parametrize("units", [(1.0, 1.0), (1e-20, 1e15)])
def test_rank_deficient_features_give_the_least_change_whatever_their_units(units):
    """A dependent column and one of zeros. A feature may be tiny beside another: it counts all the same."""
    generator = torch.Generator().manual_seed(2)
    V = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    V = torch.cat([V, V[:, :1] + V[:, 1:2], torch.zeros(30, 1, dtype=torch.float64)], dim=1)
    V[:, 2] *= units[0]
    V[:, 3] *= units[1]
    B = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    W = dense(6, 2).solve(V, -B, 0.0, torch.zeros(2, 6, dtype=torch.float64))
    lengths = torch.where(V.norm(dim=0) > 0, V.norm(dim=0), 1.0)
    expected = (torch.linalg.pinv(V / lengths) @ B) / lengths[:, None]
    torch.testing.assert_close(W.T * lengths[:, None], expected * lengths[:, None], atol=1e-10, rtol=1e-10)


def test_solving_again_changes_nothing():
    """The change is what is solved for, so rounding is proportional to it and a solution stays a solution."""
    generator = torch.Generator().manual_seed(3)
    V = torch.randn(50, 5, generator=generator, dtype=torch.float64) * torch.logspace(0, -7, 5)
    B = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    link = dense(5, 3)
    once = link.solve(V, -B, 1e-3, torch.zeros(3, 5, dtype=torch.float64))
    again = link.solve(V, V @ once.T - B, 1e-3, once)
    assert float((again - once).norm()) <= 1e-12 * float(once.norm())


def test_patches_in_chunks_give_the_same_kernel(monkeypatch):
    conv = nn.Conv2d(2, 3, 3, padding=1).double()
    model = nn.Sequential(conv, nn.Tanh(), nn.Flatten(), nn.Linear(3 * 36, 2)).double()
    X = torch.randn(11, 2, 6, 6, dtype=torch.float64)
    link = parse(model, (2, 6, 6)).layers[0].link
    W, gap = conv.weight.detach(), torch.randn(11, 3, 6, 6, dtype=torch.float64)
    whole = link.solve(X, gap, 0.5, W)
    monkeypatch.setattr("lysep.links.conv._PATCH_NUMBERS", 2 * 18 * 36)
    assert len(list(link.rows(X, gap))) == 6
    torch.testing.assert_close(link.solve(X, gap, 0.5, W), whole, rtol=1e-10, atol=1e-12)
