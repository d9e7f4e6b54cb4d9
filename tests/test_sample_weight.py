"""A sample of weight w counts as w samples: in the objective, in a sweep, in a run."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lysep
from architectures import perturbed_aux, problems
from lysep.objective import Iterate
from small import Samples, X, Y, network, plain_scores, same, values


@st.composite
def weighted_problems(draw, weights):
    """A problem and weights for its samples; the first two, which are of two classes, are kept."""
    problem = draw(problems())
    count = len(problem.y)
    drawn = draw(st.lists(weights, min_size=count, max_size=count))
    return problem, torch.tensor([max(drawn[0], 1), max(drawn[1], 1), *drawn[2:]], dtype=torch.float64)


def pair_of_states(problem, counts, seed):
    """The weighted state and the one with rows repeated, at the same inconsistent point."""
    weighted = lysep.separate(problem.model, problem.X, problem.y, sample_weight=counts)
    aux = perturbed_aux(weighted, torch.Generator().manual_seed(seed))
    weighted = dataclasses.replace(weighted, aux=aux)
    times = counts[counts > 0].long()
    repeated = lysep.separate(
        problem.model,
        weighted.inputs.repeat_interleave(times, 0),
        weighted.labels.repeat_interleave(times),
        [c.repeat_interleave(times, 0) for c in aux],
    )
    return weighted, repeated, times


def close(first, second, scale=1.0):
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-9 * scale)


@given(weighted_problems(st.integers(0, 3)), st.integers(0, 2**16))
def test_the_objective_is_that_of_repeated_rows(drawn, seed):
    weighted, repeated, _ = pair_of_states(*drawn, seed)
    ours, theirs = (dataclasses.asdict(lysep.separated_loss(state)) for state in (weighted, repeated))
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=1e-10, abs=1e-12), name


@given(weighted_problems(st.integers(0, 3)), st.integers(0, 2**16))
def test_a_sweep_is_that_of_repeated_rows(drawn, seed):
    weighted, repeated, times = pair_of_states(*drawn, seed)
    ours, theirs = lysep.sweep(weighted), lysep.sweep(repeated)
    # What is compared is the objective and what enters it; weights of dependent features may differ beyond that.
    assert lysep.separated_loss(ours).objective == pytest.approx(
        lysep.separated_loss(theirs).objective, rel=1e-6, abs=1e-12
    )
    close(ours.head_weight, theirs.head_weight)
    for c, expected in zip(ours.aux, theirs.aux, strict=True):
        close(c.repeat_interleave(times, 0), expected, scale=1e3)


@given(weighted_problems(st.floats(1e-3, 1e3)), st.integers(0, 2**16))
def test_descent_and_bound_hold_for_any_weights(drawn, seed):
    state, _, _ = pair_of_states(drawn[0], torch.ones(len(drawn[1])), seed)
    state = dataclasses.replace(state, sample_weight=drawn[1])
    objectives = [Iterate(state).objective]
    for _ in range(4):
        state = lysep.sweep(state)
        loss = lysep.separated_loss(state)
        objectives.append(loss.objective)
        assert loss.cross_entropy <= loss.bound
    assert all(after <= before for before, after in pairwise(objectives))


@pytest.mark.parametrize("step", ["backtracking", "lipschitz"])
def test_fractional_weights_descend_with_either_step(step):
    weights = torch.rand(len(Y), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.01
    result = lysep.fit(network(), X, Y, sample_weight=weights, method=lysep.Paper(step=step), sweeps=30)
    objective = result.history["objective"]
    assert all(after <= before for before, after in pairwise(objective))
    assert objective[-1] < objective[0]
    if step == "lipschitz":  # steps by the theorem are never refused
        assert sum(result.history["rejected_updates"]) == 0


def test_scores_are_weighted():
    model, weights = network(), torch.arange(len(Y)) % 3
    loss = lysep.separated_loss(model, X, Y, sample_weight=weights)
    cross_entropy, accuracy = plain_scores(model, X.repeat_interleave(weights, 0), Y.repeat_interleave(weights))
    assert loss.cross_entropy == pytest.approx(cross_entropy, rel=1e-12)
    assert loss.accuracy == pytest.approx(accuracy, rel=1e-12)


def test_ones_change_nothing_but_rounding():
    plain, weighted = network(), network()
    lysep.fit(plain, X, Y, sweeps=5)
    lysep.fit(weighted, X, Y, sample_weight=np.ones(len(Y)), sweeps=5)
    for ours, theirs in zip(values(weighted), values(plain), strict=True):
        close(ours, theirs)


def test_samples_of_weight_zero_are_never_drawn():
    weights = torch.ones(len(Y))
    weights[10:] = 0.0
    data = Samples(X, Y)
    lysep.fit(network(), data, sample_weight=weights, sweeps=6, batch_size=5, refresh_every=2)
    assert set(data.loaded) <= set(range(10))
    with pytest.raises(ValueError, match=r"batch_size=11 is larger than the data \(10 samples\)"):
        lysep.fit(network(), X, Y, sample_weight=weights, batch_size=11)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(3), r"sample_weight has shape \(3,\).*shape \(40,\)"),
        (torch.ones(40, 1), r"sample_weight has shape \(40, 1\)"),
        (torch.cat([torch.ones(39), torch.tensor([-1.0])]), r"sample_weight\[39\] is -1"),
        (torch.cat([torch.tensor([float("nan")]), torch.ones(39)]), r"sample_weight\[0\] is nan"),
        (torch.zeros(40), "zero for every sample"),
        (["a"] * 40, "sample_weight is not an array of numbers"),
        ((Y == 1).double(), "one class only"),
    ],
)
def test_bad_weights_are_refused_and_the_model_is_left_alone(weights, message):
    model = network()
    before = values(model)
    with pytest.raises(ValueError, match=message):
        lysep.fit(model, X, Y, sample_weight=weights)
    assert same(values(model), before)


def test_weights_that_float32_does_not_know_are_as_good_as_none():
    weights = torch.ones(len(X), dtype=torch.float64)
    weights[:15] = 1e-100
    few = lysep.fit(network(dtype=torch.float32), X.float(), Y, sample_weight=weights, sweeps=8)
    none = lysep.fit(network(dtype=torch.float32), X.float(), Y, sample_weight=weights.round(), sweeps=8)
    assert few.history["cross_entropy"][-1] == pytest.approx(none.history["cross_entropy"][-1], rel=1e-2)
    assert len(few.history) == 8
