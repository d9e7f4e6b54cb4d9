import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import lysep
from architectures import perturbed_aux, problems
from lysep.objective import Iterate, scores
from references import bound, layers_of, state_arguments, terms


def perturbed(problem, seed):
    state = lysep.separate(problem.model, problem.X, problem.y)
    aux = perturbed_aux(state, torch.Generator().manual_seed(seed))
    return lysep.separate(problem.model, problem.X, problem.y, aux)


@given(problems(), st.integers(0, 99))
def test_every_term_is_the_one_of_the_dense_reference(problem, seed):
    state = perturbed(problem, seed)
    found = lysep.separated_loss(state)
    expected = terms(layers_of(problem.model, problem.X.shape[1:]), *state_arguments(state))
    assert found.objective == pytest.approx(float(expected.objective), rel=1e-10)
    assert found.head == pytest.approx(float(expected.head), rel=1e-10)
    assert found.gaps == pytest.approx([float(g) for g in expected.gaps], rel=1e-10)
    assert found.weights == pytest.approx([float(w) for w in expected.omegas], rel=1e-10)
    assert found.ridges == pytest.approx([float(r) for r in expected.ridges], rel=1e-10)
    assert found.value == pytest.approx(math.sqrt(float(expected.objective) / len(problem.y)), rel=1e-10)
    logits = problem.model(problem.X).detach()
    assert found.cross_entropy == pytest.approx(float(F.cross_entropy(logits, problem.y)), rel=1e-10)
    assert found.accuracy == pytest.approx(float((logits.argmax(1) == problem.y).double().mean()))
    B = max(_slope(m) for m in problem.model)
    expected_bound = bound(len(state.aux) + 1, expected.objective, len(problem.y), B)
    assert found.bound == pytest.approx(expected_bound, rel=1e-6)


def _slope(module):
    """The largest slope of an activation, by hand; 0 for what is none."""
    if isinstance(module, nn.GELU):
        return 1.12899307 if module.approximate == "tanh" else 1.12890415
    slopes = {"Sigmoid": 0.25, "ELU": 1.3, "SiLU": 1.09983932}
    return (
        0.0
        if isinstance(module, nn.Linear | nn.Conv2d)
        else slopes.get(type(module).__name__, 1.0 * _pointwise(module))
    )


def _pointwise(module):
    return not isinstance(module, nn.AvgPool2d | nn.Flatten)


@given(problems())
def test_forward_aux_leave_no_gap_and_only_the_heads_term(problem):
    loss = lysep.separated_loss(problem.model, problem.X, problem.y)
    assert loss.gaps == [0.0] * len(loss.gaps)
    residuals = F.cross_entropy(problem.model(problem.X).detach(), problem.y, reduction="none")
    assert loss.objective == pytest.approx(float(residuals.square().sum()), rel=1e-12)


@given(problems(), st.integers(0, 99), st.sampled_from([0.01, 1.0, 30.0]))
def test_bound_holds_for_any_aux(problem, seed, scale):
    """Theorems 3.1 and 4.1 hold everywhere, not only where training leads."""
    state = lysep.separate(problem.model, problem.X, problem.y)
    aux = perturbed_aux(state, torch.Generator().manual_seed(seed), scale)
    loss = lysep.separated_loss(problem.model, problem.X, problem.y, aux)
    assert loss.cross_entropy <= loss.bound


@given(problems(), st.integers(0, 99))
def test_permuting_samples_changes_nothing_but_rounding(problem, seed):
    state = perturbed(problem, seed)
    order = torch.randperm(len(problem.y), generator=torch.Generator().manual_seed(seed))
    a = lysep.separated_loss(state)
    b = lysep.separated_loss(problem.model, problem.X[order], problem.y[order], [c[order] for c in state.aux])
    assert b.objective == pytest.approx(a.objective, rel=1e-12)
    assert b.bound == pytest.approx(a.bound, rel=1e-12)


@given(problems(), st.integers(0, 99))
def test_updated_iterates_are_bitwise_those_evaluated_from_scratch(problem, seed):
    """What a sweep compares and what separated_loss reports are the same numbers."""
    it = Iterate(perturbed(problem, seed))
    for l in range(len(it.aux)):
        it = it.with_aux(l, it.aux[l] * 0.9)
        bias = it.biases[l]
        it = it.with_parameters(l, it.weights[l] * 1.1, None if bias is None else bias + 0.1)
    it = it.with_parameters(len(it.aux), it.weights[-1] * 0.7, it.biases[-1])
    again = Iterate(it.state)
    assert again.objective == it.objective
    assert again.squares == it.squares
    assert again.norms == it.norms
    assert again.scores() == scores(it.network, it.weights, it.biases, it.inputs, it.labels)


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_a_hundred_layers_neither_overflow_nor_underflow(size):
    """ω of the first link is ‖W‖^198, about 1e±792: no float64. S must be right all the same, and sweeps must work."""
    depth, width = 100, 3
    modules = [m for _ in range(depth - 1) for m in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*modules, nn.Linear(width, 2)).double()
    X, y = torch.randn(5, width, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1])
    with torch.no_grad():
        for m in model[::2]:
            m.weight.mul_(size / m.weight.norm())
    state = lysep.separate(model, X, y)
    head = lysep.separated_loss(state).objective
    assert math.isfinite(head)
    after = lysep.separated_loss(lysep.sweep(state)).objective
    assert after < head
    aux = [c.clone() for c in state.aux]
    aux[-2] += 1e-3  # ω = size⁴ on 15 entries, and the gap of the link above it
    moved = lysep.separated_loss(model, X, y, aux)
    assert moved.weights[-2] == pytest.approx(size**4)
    assert moved.objective == pytest.approx(head + size**4 * 15e-6 + size**2 * moved.gaps[-1], rel=1e-6)
    aux[0] += 1.0  # beyond the range of float64 in one case, nothing at all in the other: never a NaN
    extreme = lysep.separated_loss(model, X, y, aux).objective
    assert extreme == math.inf if size > 1 else extreme == pytest.approx(moved.objective)


def test_products_of_norms_are_formed_without_overflow_on_the_way():
    """Half the norms are 1e-8, half 1e8: every ω is representable, though partial products in float64 are not."""
    depth, width = 100, 2
    modules = [m for _ in range(depth - 1) for m in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*modules, nn.Linear(width, 2)).double()
    with torch.no_grad():
        for place, m in enumerate(model[::2]):
            m.weight.mul_((1e-4 if place < depth // 2 else 1e4) / m.weight.norm())
    X, y = torch.randn(4, width, dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    state = lysep.separate(model, X, y)
    aux = [c.clone() for c in state.aux]
    aux[0] += 1e-3
    loss = lysep.separated_loss(model, X, y, aux)
    assert math.log10(loss.weights[0]) == pytest.approx(8.0, abs=1e-6)
    assert loss.weights[0] * loss.gaps[0] == pytest.approx(1e8 * 8e-6, rel=1e-6)


def test_arguments_are_checked():
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    X, y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    state = lysep.separate(model, X, y)
    with pytest.raises(ValueError, match="takes nothing else"):
        lysep.separated_loss(state, X, y)
    with pytest.raises(ValueError, match="aux has 2 entries, but the model has 1"):
        lysep.separated_loss(model, X, y, [state.aux[0]] * 2)
    with pytest.raises(ValueError, match=r"aux\[0\] has shape \(4, 2\)"):
        lysep.separated_loss(model, X, y, [X])
    with pytest.raises(ValueError, match=r"aux\[0\] holds NaN"):
        lysep.separated_loss(model, X, y, [state.aux[0] * math.nan])
