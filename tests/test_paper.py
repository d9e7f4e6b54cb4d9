"""Algorithms 1 and 2: against a slow sweep written from the text, and the properties that every sweep must have."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import lysep
from architectures import perturbed_aux, problems
from lysep.methods import SweepLog
from lysep.objective import Iterate
from references import layers_of, state_arguments, sweep, terms


def networks():
    torch.manual_seed(4)
    yield (
        "deep",
        nn.Sequential(
            nn.Linear(2, 4),
            nn.Tanh(),
            nn.Linear(4, 3),
            nn.Sigmoid(),
            nn.Linear(3, 4),
            nn.GELU(),
            nn.Linear(4, 3),
        ),
        (2,),
    )
    yield (
        "no biases",
        nn.Sequential(
            nn.Linear(3, 4, bias=False),
            nn.ELU(),
            nn.Linear(4, 3, bias=False),
            nn.Tanh(),
            nn.Linear(3, 3, bias=False),
        ),
        (3,),
    )
    yield (
        "convolutions",
        nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(2, 2, 2, padding="same"),
            nn.SiLU(),
            nn.AvgPool2d((2, 1), stride=1, padding=(1, 0)),
            nn.Flatten(),
            nn.Linear(2 * 4 * 3, 5),
            nn.Tanh(),
            nn.Linear(5, 3),
        ),
        (1, 6, 6),
    )
    yield (
        "pooled head",
        nn.Sequential(
            nn.Conv2d(1, 2, 2, stride=2, dilation=2),
            nn.Softplus(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(2, 3),
        ),
        (1, 6, 6),
    )


NETWORKS = list(networks())


@pytest.mark.parametrize(("name", "model", "in_shape"), NETWORKS, ids=[n[0] for n in NETWORKS])
@pytest.mark.parametrize("start", [0.7, 1.6, 8.0])
def test_sweeps_are_those_of_the_slow_reference(name, model, in_shape, start):
    model = model.double()
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(40, *in_shape, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=generator)
    state = lysep.separate(model, X, y)
    state = lysep.separate(model, X, y, perturbed_aux(state, generator, 0.05))
    layers = layers_of(model, in_shape)
    weights, biases, aux, *_ = state_arguments(state)
    method = lysep.Paper(start=start, shrink=0.4, max_trials=60)
    for _ in range(3):
        state = lysep.sweep(state, method)
        weights, biases, aux = sweep(layers, weights, biases, aux, X, y, start, 0.4)
        ours = state_arguments(state)
        for mine, theirs in zip(ours[0] + ours[2], [*weights, *aux], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
        for mine, theirs in zip(ours[1], biases, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def check_sweeps(problem, method, sweeps, seed):
    state = lysep.separate(problem.model, problem.X, problem.y)
    aux = perturbed_aux(state, torch.Generator().manual_seed(seed), 0.1)
    for start in (state, lysep.separate(problem.model, problem.X, problem.y, aux)):
        state = start
        before = lysep.separated_loss(state)
        for _ in range(sweeps):
            state = lysep.sweep(state, method)
            after = lysep.separated_loss(state)
            assert after.objective <= before.objective
            assert after.cross_entropy <= after.bound
            before = after


@given(problems(), st.integers(0, 99), st.floats(0.3, 20.0))
def test_objective_never_rises_and_the_bound_is_never_broken(problem, seed, start):
    check_sweeps(problem, lysep.Paper(start=start), 6, seed)


@given(problems(dtype=torch.float32), st.integers(0, 99))
def test_the_same_in_float32(problem, seed):
    check_sweeps(problem, lysep.Paper(), 6, seed)


@given(problems(images=False), st.integers(0, 99))
def test_lipschitz_steps_descend_without_a_trial(problem, seed):
    modules = [nn.Tanh() if _is_activation(m) else m for m in problem.model]
    problem.model = nn.Sequential(*modules)
    method = lysep.Paper(step="lipschitz")
    check_sweeps(problem, method, 4, seed)
    _, _, log = method.sweep(Iterate(lysep.separate(problem.model, problem.X, problem.y)), {})
    assert log.line_search_evaluations == 0


def _is_activation(module):
    return not isinstance(module, nn.Linear)


@given(problems(min_samples=8), st.integers(0, 99))
def test_descent_holds_for_the_dense_reference_too(problem, seed):
    """Not by our own evaluation of S, but by the reference's, up to its rounding."""
    state = lysep.separate(problem.model, problem.X, problem.y)
    aux = perturbed_aux(state, torch.Generator().manual_seed(seed), 0.1)
    state = lysep.separate(problem.model, problem.X, problem.y, aux)
    layers = layers_of(problem.model, problem.X.shape[1:])
    before = float(terms(layers, *state_arguments(state)).objective)
    after = float(terms(layers, *state_arguments(lysep.sweep(state))).objective)
    assert after <= before * (1 + 1e-9)


@given(problems(), st.integers(0, 99))
def test_a_sweep_leaves_its_argument_alone_and_is_reproducible(problem, seed):
    state = lysep.separate(problem.model, problem.X, problem.y)
    tensors = [*state.weights, *state.aux, state.head_weight, state.inputs, *problem.model.parameters()]
    copies = [t.clone() for t in tensors]
    once, again = lysep.sweep(state), lysep.sweep(state)
    for now, then in zip(tensors, copies, strict=True):
        assert torch.equal(now, then)
    for a, b in zip([*once.weights, *once.aux], [*again.weights, *again.aux], strict=True):
        assert torch.equal(a, b)


def test_permuted_samples_give_the_same_sweep_up_to_rounding():
    _, model, _ = NETWORKS[0]
    X = torch.randn(50, 2, dtype=torch.float64)
    y = torch.randint(0, 3, (50,))
    order = torch.randperm(50)
    a = lysep.sweep(lysep.separate(model.double(), X, y))
    b = lysep.sweep(lysep.separate(model, X[order], y[order]))
    for mine, theirs in zip(a.weights, b.weights, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(a.aux[0][order], b.aux[0], rtol=1e-9, atol=1e-9)


def test_a_zero_head_learns():
    """All gap weights are zero at first; the head's gradient is not, if its bias or features see the labels."""
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    nn.init.zeros_(model[2].weight)
    X = torch.rand(200, 2, dtype=torch.float64) * 2 - 1
    y = (X[:, 0] > X[:, 1]).long()
    result = lysep.fit(model, X, y, sweeps=60)
    assert result.history["accuracy"][-1] > 0.95


def test_at_the_rounding_floor_frozen_blocks_are_skipped():
    modules = [m for _ in range(19) for m in (nn.Linear(6, 6), nn.Tanh())]
    model = nn.Sequential(*modules, nn.Linear(6, 2)).double()
    X = torch.randn(100, 6, dtype=torch.float64)
    y = (X[:, 0] > 0).long()
    it = Iterate(lysep.separate(model, X, y))
    for _ in range(5):
        it, _, log = lysep.Paper().sweep(it, {})
    assert log.skipped_updates > 0
    assert log.line_search_evaluations < 40


def test_a_sweep_that_cannot_gain_returns_its_argument():
    class Worse(lysep.Paper):
        def _step_head(self, it, ridge, log):
            return it.with_parameters(len(it.weights) - 1, it.weights[-1] * 1e3, it.biases[-1])

    _, model, in_shape = NETWORKS[0]
    it = Iterate(lysep.separate(model.double(), torch.randn(9, *in_shape).double(), torch.arange(9) % 3))
    new, _, log = Worse().sweep(it, {})
    assert new is it
    assert log.rejected_updates >= 1
    assert isinstance(log, SweepLog)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": "newton"}, "step='newton' is unknown"),
        ({"start": 0.0}, "start=0.0 must be a positive number"),
        ({"start": math.inf}, "start=inf must be"),
        ({"shrink": 1.0}, "shrink=1.0 must lie between 0 and 1"),
        ({"max_trials": 0}, "max_trials=0 must be a positive integer"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        lysep.Paper(**options)


def test_lipschitz_refuses_unbounded_activations_and_leaves_the_model():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    before = [p.clone() for p in model.parameters()]
    X, y = torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"needs activations with bounded value.*module 2 follows ReLU"):
        lysep.fit(model, X, y, method=lysep.Paper(step="lipschitz"))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
