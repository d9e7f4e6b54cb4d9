"""Gradients and block solutions against autograd on the dense reference."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import lysep
from architectures import perturbed_aux, problems
from lysep.methods import SweepLog, lipschitz, updates
from lysep.objective import Iterate
from references import columns, layers_of, state_arguments, terms


def perturbed(problem, seed):
    state = lysep.separate(problem.model, problem.X, problem.y)
    aux = perturbed_aux(state, torch.Generator().manual_seed(seed))
    return lysep.separate(problem.model, problem.X, problem.y, aux)


def reference(problem, state, **changed):
    """S of the dense reference with some of its arguments replaced."""
    names = ("weights", "biases", "aux", "X", "y")
    arguments = dict(zip(names, state_arguments(state), strict=True)) | changed
    return terms(layers_of(problem.model, problem.X.shape[1:]), **arguments)


@given(problems(), st.integers(0, 99))
def test_aux_gradients_are_those_of_autograd(problem, seed):
    state = perturbed(problem, seed)
    it = Iterate(state)
    aux = [columns(c).requires_grad_() for c in state.aux]
    S = reference(problem, state, aux=aux).objective
    omegas = [*reference(problem, state).omegas, torch.ones(())]
    for l, grad in enumerate(torch.autograd.grad(S, aux)):
        assume(float(omegas[l + 1]) > 1e-200)
        ours = 2.0 * float(omegas[l + 1]) * columns(updates.aux_gradient(it, l))
        torch.testing.assert_close(ours, grad, rtol=1e-9, atol=1e-9 * float(grad.abs().max() + 1e-30))


@given(problems(), st.integers(0, 99))
def test_head_gradient_is_that_of_autograd(problem, seed):
    state = perturbed(problem, seed)
    it = Iterate(state)
    weights, biases, *_ = state_arguments(state)
    W = weights[-1].clone().requires_grad_()
    b = None if biases[-1] is None else biases[-1].clone().requires_grad_()
    S = reference(problem, state, weights=[*weights[:-1], W], biases=[*biases[:-1], b]).objective
    ours = updates.head_gradient(it, it.ridges[-1])
    expected = torch.autograd.grad(S, [W] if b is None else [W, b])
    for mine, theirs in zip(ours, expected, strict=False):
        torch.testing.assert_close(2.0 * mine, theirs, rtol=1e-9, atol=1e-9 * float(theirs.abs().max()))


@given(problems(), st.integers(0, 99))
def test_solved_weights_and_biases_have_no_gradient_left(problem, seed):
    state = perturbed(problem, seed)
    start = Iterate(state)
    ridges = start.ridges
    for l in range(len(start.aux)):
        log = SweepLog()  # a block that is solved already may be rejected: its gradient is zero all the same
        solved = updates.solve_weight(start, l, ridges[l], log)
        _check_stationary(problem, solved.state, l, "weights", start)
        if start.biases[l] is not None:
            solved = updates.solve_bias(solved, l, ridges[l], log)
            _check_stationary(problem, solved.state, l, "biases", start)


def _check_stationary(problem, state, l, kind, start):
    weights, biases, *_ = state_arguments(state)
    values = {"weights": list(weights), "biases": list(biases)}
    x = values[kind][l].clone().requires_grad_()
    values[kind][l] = x
    t = reference(problem, state, **values)
    omega = float(t.omegas[l])
    assume(omega > 1e-200)
    (grad,) = torch.autograd.grad(t.objective, x)
    # what the gradient is made of, before it cancels
    V = start.features[l]
    size = math.sqrt(float(V.square().sum())) if kind == "weights" else math.sqrt(len(columns(V)))
    target = math.sqrt(float(start.aux[l].square().sum())) + 1.0
    scale = 2.0 * omega * (size + 1.0) * (target + size * float(x.detach().norm()))
    assert float(grad.norm()) <= 1e-8 * scale


@given(problems(), st.integers(0, 99))
def test_head_curvature_bounds_the_second_derivative(problem, seed):
    it = Iterate(perturbed(problem, seed))
    ridge = it.ridges[-1]
    bounded = updates.head_curvature(it, ridge)
    shapes = [p for p in (it.weights[-1], it.biases[-1]) if p is not None]
    at = torch.cat([p.reshape(-1) for p in shapes])

    def half(flat):
        W = flat[: it.weights[-1].numel()].reshape(it.weights[-1].shape)
        z = it.features[-1] @ W.T
        z = z if it.biases[-1] is None else z + flat[it.weights[-1].numel() :]
        r = torch.logsumexp(z, 1) - z.gather(1, it.labels[:, None])[:, 0]
        return 0.5 * (r.square().sum() + ridge * (it.network.layers[-1].link.metric.apply(W) * W).sum())

    hessian = torch.autograd.functional.hessian(half, at)
    assert float(torch.linalg.eigvalsh(hessian)[-1]) <= bounded * (1 + 1e-9)


@given(problems(images=False), st.integers(0, 99), st.floats(1e-4, 3.0))
def test_lipschitz_constants_of_lemma_3_3_hold(problem, seed, distance):
    """Between two points, the gradient changes by at most C times their distance."""
    it = Iterate(perturbed(problem, seed))
    generator = torch.Generator().manual_seed(seed)
    for l in range(len(it.aux)):
        bounds = it.network.layers[l + 1].activation.bounds
        if bounds is None:
            continue
        top = l + 1 == len(it.aux)
        C = lipschitz.top_constant(it, bounds) if top else lipschitz.hidden_constant(it, l, bounds)
        step = distance * torch.randn(it.aux[l].shape, generator=generator, dtype=torch.float64)
        moved = it.with_aux(l, it.aux[l] + step)
        change = 2.0 * (updates.aux_gradient(moved, l) - updates.aux_gradient(it, l))
        assert float(change.norm()) <= C * float(step.norm()) * (1 + 1e-9) + 1e-12
    bounds = it.network.layers[-1].activation.bounds
    if bounds is not None:
        ridge = it.ridges[-1]
        gradient = updates.head_gradient(it, ridge)
        norm = 2.0 * math.sqrt(sum(float(g.square().sum()) for g in gradient if g is not None))
        C = lipschitz.head_constant(it, ridge, norm, bounds)
        moved = updates.move_head(it, gradient, 2.0 / C)
        parts = zip(updates.head_gradient(moved, ridge), gradient, strict=True)
        change = math.sqrt(sum(4.0 * float((a - b).square().sum()) for a, b in parts if a is not None))
        assert change <= C * (norm / C) * (1 + 1e-9) + 1e-12


def test_features_beyond_range_reject_the_solution_and_keep_the_state():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2)).double()
    torch.nn.init.zeros_(model[0].weight)
    X = torch.tensor([[1.5e308, 1.5e308], [1.5e308, -1.5e308], [1.0, 3.0]], dtype=torch.float64)
    state = lysep.separate(model, X, torch.tensor([0, 1, 0]), [torch.ones(3, 3, dtype=torch.float64)])
    it, log = Iterate(state), SweepLog()
    assert updates.solve_weight(it, 0, 0.0, log) is it
    assert log.rejected_updates == 1


@pytest.mark.parametrize("shift", [0.0, math.nan])
def test_only_lower_is_kept(shift):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
    X, y = torch.randn(6, 2, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1, 0])
    it, log = Iterate(lysep.separate(model, X, y)), SweepLog()
    worse = it.with_aux(0, it.aux[0] + 1.0 + shift)
    assert updates.keep_if_lower(it, worse, lambda i: updates.aux_terms(i, 0), log) is it
    assert log.rejected_updates == 1
