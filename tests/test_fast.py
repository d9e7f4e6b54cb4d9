"""`method="fast"`: against slow dense references, and the properties that every sweep must have."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import lysep
from architectures import problems
from lysep import Fast
from lysep.methods import separation
from lysep.methods.coupling import Coupling
from lysep.methods.fast import moved
from lysep.methods.separation import separate
from lysep.problems import circle, cnn, digits, fnn
from references import charge_of, coupled_step, layers_of, local_gains, local_problem
from small import Recorder, X, Y, disk, network, plain_scores, point_of, run, same, values
from test_paper import NETWORKS
from test_sample_weight import close, weighted_problems


def separated(point, damping=1.0):
    return point.residuals.sqrt(), separate(point, damping)


# -- against the references --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "model", "in_shape"), NETWORKS, ids=[n[0] for n in NETWORKS])
def test_sweeps_are_those_of_the_slow_reference(name, model, in_shape):
    model = model.double()
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(60, *in_shape, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (60,), generator=generator)
    layers = layers_of(model, in_shape)
    seen = run(point_of(model, X, y), 3)
    for (point, memory), (after, remembered) in pairwise(seen):
        ridge = separation.RIDGE + separation.DAMPED * memory["damping"]
        rho, deltas = local_gains(layers, point.weights, point.biases, X, y)
        below = [X, *point.aux]
        local = [
            local_problem(
                *(layer, W, b, c.reshape(len(c), -1).T, delta, rho, ridge),
                separation.BIAS_RIDGE,
                separation.GAIN_RIDGE,
            )
            for layer, W, b, c, delta in zip(layers, point.weights, point.biases, below, deltas, strict=True)
        ]
        directions = [[problem.solution for problem in local]]
        if "step.0" in memory:
            directions.append([memory[f"step.{l}"] for l in range(len(layers))])
        charges = [charge_of(problem, [d[l] for d in directions]) for l, problem in enumerate(local)]
        groups, damping = min(8, len(layers)), remembered["damping"]
        steps, C = coupled_step(layers, point.weights, point.biases, X, y, directions, charges, groups, damping)
        if "step.0" in memory:
            a = C[:, groups:].sum(1)
            problem = Coupling(separated(point)[1], [memory[f"step.{l}"] for l in range(len(layers))])
            gained = float((rho - a).square().sum() - rho.square().sum())
            assert problem.gained() == pytest.approx(gained, rel=1e-6, abs=1e-9)
        for l, step in enumerate(steps):
            scale = float(step.abs().max())
            torch.testing.assert_close(remembered[f"step.{l}"], step, rtol=1e-4, atol=1e-5 * scale)
        torch.testing.assert_close(values(after.state), values(moved(point, steps).state), rtol=1e-4, atol=1e-6)


@given(problems(), st.integers(0, 2**16))
def test_the_separated_problems_bound_the_linearized_loss(problem, seed):
    """Jensen, then Cauchy and Schwarz, for any steps; and at the solutions over L the linearized loss has fallen."""
    point = point_of(problem.model, problem.X, problem.y)
    rho, groups = separated(point)
    solved = {}
    for group in groups:
        for l, regression, B, D in zip(group.layers, group.regressions, group.metric, group.solution, strict=True):
            squares = torch.einsum("no...,op,np...->n...", regression.delta, B.inverse(), regression.delta)
            norms = squares.sqrt().reshape(len(squares), -1)  # by place
            gram = regression.gram((norms * norms.sum(1, keepdim=True)).reshape(squares.shape))
            solved[l] = (regression, gram, B, D)
    L = len(solved)
    generator = torch.Generator().manual_seed(seed)
    for random in (True, False):
        effects, charges, rounding = [], [], []
        for l in range(L):
            regression, gram, B, D = solved[l]
            step = torch.randn(D.shape, generator=generator, dtype=D.dtype) if random else D / L
            effects.append(regression.effects(step[None])[0])
            charges.append(float((B @ step @ gram * step).sum()))
            rounding.append(1e-12 * float((B.abs() @ step.abs() @ gram.abs() * step.abs()).sum()))
            assert float(effects[-1].square().sum()) <= charges[-1] + rounding[-1] + 1e-15  # Cauchy and Schwarz
        linearized = float((rho + sum(effects)).square().sum())
        apart = sum(
            float((rho.square() + 2.0 * L * rho * a).sum()) + L**2 * charge
            for a, charge in zip(effects, charges, strict=True)
        )
        assert linearized <= apart / L * (1 + 1e-12) + L * sum(rounding) + 1e-12  # Jensen
    assert linearized <= float(rho.square().sum()) * (1 + 1e-12)  # at the solutions


@pytest.mark.parametrize("sweeps", [1, 8, 13])  # at last, few samples have any gain
def test_of_many_samples_the_gradient_is_exact_and_second_moments_are_nearly_those_of_all(sweeps):
    data, model = circle(train=3000), fnn(3, 10, start="pytorch")
    lysep.fit(model, data.X_train, data.y_train, sweeps=sweeps)
    point = point_of(model, data.X_train, data.y_train)
    _, problems = separated(point, damping=0.0)
    model.zero_grad()
    F.cross_entropy(model(data.X_train), data.y_train, reduction="sum").backward()
    rho, deltas = local_gains(layers_of(model, (2,)), point.weights, point.biases, data.X_train, data.y_train)
    generator = torch.Generator().manual_seed(1)
    for problem in problems:
        for place, (l, regression) in enumerate(zip(problem.layers, problem.regressions, strict=True)):
            assert len(regression.delta) < 1000
            module, B = model[2 * l], problem.metric[place]
            delta = torch.where(rho[:, None] > 0.0, deltas[l].T, 0.0)  # zero where the reference's loss is rounded away
            v, gradient = data.X_train if l == 0 else torch.tanh(point.aux[l - 1]), module.weight.grad
            if module.bias is not None:
                v = torch.cat([v, torch.ones_like(v[:, :1])], 1)
                gradient = torch.cat([gradient, module.bias.grad[:, None]], 1)
            torch.testing.assert_close(2.0 * problem.moment[place], gradient, rtol=1e-9, atol=1e-9)
            gram = (v.T * (delta @ B.inverse() * delta).sum(1)) @ v
            close_as_forms(problem.gram[place], gram)
            close_as_forms(B @ B, delta.T @ delta)
            D = torch.randn(B.shape[0], v.shape[1], generator=generator, dtype=torch.float64)
            effect = (v @ D.T * delta).sum(1).square().sum()
            assert 0.5 < float(regression.effects(D[None]).square().sum() / effect) < 2.0


@pytest.mark.parametrize("sweeps", [1, 6])
def test_of_convolutions_fewer_samples_give_second_moments(sweeps):
    data, model = digits(0), cnn(2, 3, image=(1, 8, 8), hidden=10, start="pytorch", dtype=torch.float64)
    X, y = data.X_train[:400], data.y_train[:400]
    lysep.fit(model, X, y, sweeps=sweeps)
    point = point_of(model, X, y)
    problems = {problem.layers[0]: problem for problem in separated(point, damping=0.0)[1]}
    model.zero_grad()
    F.cross_entropy(model(X), y, reduction="sum").backward()
    layers = layers_of(model, (1, 8, 8))
    rho, deltas = local_gains(layers, point.weights, point.biases, X, y)
    for l, below in enumerate([X, point.aux[0]]):
        problem, module, weight, bias = problems[l], model[3 * l], point.weights[l], point.biases[l]
        assert len(problem.regressions[0].delta) == 400  # the coupling sees them all
        gradient = torch.cat([module.weight.grad.flatten(1), module.bias.grad[:, None]], 1)
        torch.testing.assert_close(2.0 * problem.moment[0], gradient, rtol=1e-9, atol=1e-9)
        exact = local_problem(
            *(layers[l], weight, bias, below.flatten(1).T, deltas[l], rho, separation.RIDGE),
            *(separation.BIAS_RIDGE, separation.GAIN_RIDGE),
        )
        gram = torch.einsum("apn,pn,bpn->ab", exact.v, exact.factors, exact.v)
        assert not torch.allclose(problem.metric[0], exact.B, rtol=1e-6)
        close_as_forms(problem.metric[0] @ problem.metric[0], exact.B @ exact.B)
        close_as_forms(problem.gram[0], gram)


def close_as_forms(ours, theirs):
    """By no more than a factor of two in any direction but those that are nothing but ridge."""
    values, vectors = torch.linalg.eigh(theirs)
    kept = values > 1e-2 * values[-1]
    whitened = vectors[:, kept] * values[kept].rsqrt()
    ratios = torch.linalg.eigvalsh(whitened.T @ ours @ whitened)
    assert float(ratios[0]) > 0.5
    assert float(ratios[-1]) < 2.0


def test_damping_follows_what_was_gained_of_what_was_promised():
    data, method, factors = circle(train=500), Fast(), []
    point, memory = run(point_of(fnn(3, 10, start="pytorch"), data.X_train, data.y_train), 1)[-1]
    for _ in range(24):
        after, remembered, log = method.sweep(point, memory)
        kept = memory["gained"] / memory["expected"]
        factors.append(0.4 if kept > 0.5 else 4.0 if kept < 0.15 else 1.0)
        least = min(max(factors[-1] * memory["damping"], 1e-6), max(10.0, memory["damping"]))
        assert remembered["damping"] == pytest.approx(least * 4.0**log.rejected_updates, rel=1e-12)
        assert remembered["gained"] == pytest.approx((point.total - after.total) / 500, rel=1e-12)
        point, memory = after, remembered
    assert {0.4, 1.0} <= {*factors}


# -- descent and bound -------------------------------------------------------------------------------------------------


def check_run(history):
    rows = [history.row(i) for i in range(len(history))]
    assert all(row["cross_entropy"] <= row["bound"] for row in rows)
    for before, after in pairwise(rows):
        if before["batch"] == after["batch"]:
            assert after["objective"] <= before["objective"]
            assert after["cross_entropy"] <= before["cross_entropy"]


@given(problems(min_samples=6), st.sampled_from(["auto", "measured", "given"]))
def test_the_cross_entropy_never_rises_and_the_bound_is_never_broken(problem, start):
    for options in ({}, {"batch_size": 4, "refresh_every": 3}, {"batch_size": 5, "refresh_every": 1}):
        model = copy.deepcopy(problem.model)
        result = lysep.fit(model, problem.X, problem.y, method=Fast(start=start), sweeps=7, **options)
        check_run(result.history)
        assert all(torch.isfinite(p).all() for p in values(model))


@given(problems(min_samples=6, dtype=torch.float32))
def test_the_same_in_float32(problem):
    result = lysep.fit(problem.model, problem.X, problem.y, sweeps=7)
    check_run(result.history)
    assert all(p.dtype == torch.float32 for p in values(problem.model))


@given(problems())
def test_what_is_recorded_is_the_model_by_plain_pytorch(problem):
    history = lysep.fit(problem.model, problem.X, problem.y, sweeps=3).history
    last = history.row(-1)
    expected, _ = plain_scores(problem.model, problem.X, problem.y)
    amplified = math.prod(1.0 + float(p.norm()) for p in values(problem.model))
    assert last["cross_entropy"] == pytest.approx(expected, rel=1e-9, abs=1e-14 * amplified)
    assert last["objective"] == pytest.approx(len(problem.y) * last["cross_entropy"], rel=1e-12)
    with torch.no_grad():
        r = F.cross_entropy(problem.model(problem.X), problem.y, reduction="none")
    S = float(r.square().mean().sqrt())
    assert last["separated_loss"] == pytest.approx(S, rel=1e-9, abs=1e-14 * amplified)


def test_samples_without_gain_and_a_large_loss_are_learned():
    """Behind dead units a gain is zero, however large the loss: nothing may be divided by it."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double()
    with torch.no_grad():
        for parameter, values in zip(
            model.parameters(), ([[1.0], [2.0]], [0.0, 0.0], [[1.0, 1.0]] * 2, [30.0, 0.0]), strict=False
        ):
            parameter.copy_(torch.tensor(values))
    X, y = torch.tensor([[-1.0], [-2.0], [1.0], [2.0]]), torch.tensor([1, 1, 0, 0])
    history = lysep.fit(model, X, y, method=Fast(start="given"), sweeps=20).history
    assert history["cross_entropy"][-1] < 0.5


# -- weights of samples ------------------------------------------------------------------------------------------------


def features_vary(point, memory):
    """What a layer does with features that are all but constant, over the gains, is decided by rounding: they act like
    its bias."""
    for name, grams in memory.items():
        layer = point.network.layers[int(name.partition(".")[2])] if name.startswith("gram.") else None
        if layer is not None and layer.has_bias:
            squares, means = grams.diagonal(dim1=1, dim2=2), grams[:, :, -1].square() / grams[:, -1, -1:]
            if bool((squares - means <= 1e-6 * squares)[:, :-1].any()):
                return False
    return True


@given(weighted_problems(st.integers(0, 3)))
def test_a_sweep_with_counts_is_that_of_repeated_rows(drawn):
    problem, counts = drawn
    times = counts[counts > 0].long()
    kept = counts > 0
    weighted = point_of(problem.model, problem.X[kept], problem.y[kept], counts[kept])
    repeated = point_of(
        problem.model, problem.X[kept].repeat_interleave(times, 0), problem.y[kept].repeat_interleave(times)
    )
    assert weighted.total == pytest.approx(repeated.total, rel=1e-12)
    (ours, memory), (theirs, _) = run(weighted, 1)[1], run(repeated, 1)[1]
    assume(features_vary(ours, memory))
    assert ours.total == pytest.approx(theirs.total, rel=1e-5, abs=1e-9)
    close(ours.weights[-1], theirs.weights[-1], scale=1e5)


# -- the same again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_sweep_is_a_function_of_state_and_memory_alone(dtype):
    """What makes exact resume possible: a point rebuilt from its state and a copy of the memory give the same bits."""
    seen = run(point_of(network(dtype=dtype), *disk(dtype=dtype)), 6)
    point, memory = seen[3]
    rebuilt = Fast().evaluate(point.state)
    copied = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in memory.items()}
    again = run(rebuilt, 3, copied)
    for (ours, _), (theirs, _) in zip(seen[3:], again, strict=True):
        assert same(values(ours.state), values(theirs.state))
        assert ours.total == theirs.total


def test_what_leaves_a_sweep_may_take_part_in_autograd():
    for point, memory in run(point_of(network(), X, Y), 3):
        kept = [value for value in memory.values() if isinstance(value, torch.Tensor)]
        assert not any(tensor.is_inference() for tensor in [*point.weights, *point.biases, *point.aux, *kept])


def test_the_same_seed_gives_the_same_bits():
    def bits():
        model = fnn(12, 6, start="pytorch", dtype=torch.float32)
        result = lysep.fit(model, X.float(), Y, sweeps=5, batch_size=30, refresh_every=2, seed=3)
        return values(model), result.history["objective"]

    first, second = bits(), bits()
    assert same(first[0], second[0])
    assert first[1] == second[1]


@pytest.mark.parametrize("scale", [1e100, 1e160, 1e200, 1e300])
def test_huge_features_do_no_harm(scale):
    model = network(activation=nn.ReLU)
    before = plain_scores(model, X * scale, Y)[0]
    lysep.fit(model, X * scale, Y, method=Fast(start="given"), sweeps=3)
    assert plain_scores(model, X * scale, Y)[0] <= before


def test_a_model_that_overflows_is_returned_as_it_was():
    model = network(activation=nn.ReLU)
    with torch.no_grad():
        model[2].weight.mul_(1e10)
    before = values(model)
    assert lysep.fit(model, X * 1e300, Y, sweeps=3).status is lysep.Status.NON_FINITE
    assert same(values(model), before)


# -- what it reaches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_twenty_layers_as_pytorch_starts_them_are_fitted_in_fifty_sweeps(seed):
    data = circle(seed)
    reached = [lambda p: p.row["cross_entropy"] <= 1e-2]
    model = fnn(20, 10, start="pytorch", seed=seed)
    result = lysep.fit(model, data.X_train, data.y_train, sweeps=50, callbacks=reached)
    assert result.status is lysep.Status.STOPPED
    assert result.history["accuracy"][-1] >= 0.994
    check_run(result.history)


def test_a_zero_head_learns():
    model = network(seed=0)
    nn.init.zeros_(model[2].weight)
    assert lysep.fit(model, X, Y, sweeps=60).history["accuracy"][-1] > 0.95


def test_nothing_to_gain_stalls():
    """Labels that the inputs know nothing about, and a head that guesses right already."""
    inputs = torch.zeros(8, 2, dtype=torch.float64)
    labels = torch.tensor([0, 1] * 4)
    model = network()
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    result = lysep.fit(model, inputs, labels, sweeps=9)
    assert result.status is lysep.Status.STALLED
    assert result.history["cross_entropy"][-1] == pytest.approx(math.log(2.0))


def test_callbacks_see_consistent_states():
    seen = Recorder()
    lysep.fit(network(), X, Y, sweeps=3, callbacks=[seen])
    for progress in seen.seen:
        loss = lysep.separated_loss(progress.state)
        assert max(loss.gaps) == 0.0
        assert loss.cross_entropy == pytest.approx(progress.row["cross_entropy"], rel=1e-12)
        assert loss.value == pytest.approx(progress.row["separated_loss"], rel=1e-12)
        assert loss.bound == pytest.approx(progress.row["bound"], rel=1e-12)
