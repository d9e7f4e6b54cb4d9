"""Baselines and the scorer (baselines.py, scoring.py)."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lysep
from lysep.baselines import OPTIMIZERS, minimize_cross_entropy
from lysep.problems import circle, fnn
from lysep.scoring import score
from small import plain_scores, same

RATES = {"gd": 0.1, "momentum": 0.05, "adam": 0.01, "lbfgs": 1.0, "lbfgs-single": 1.0, "muon": 0.01}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_baseline_lowers_the_loss_and_records_it_before_each_step(optimizer):
    data, model = circle(train=200), fnn(3, 10, start="pytorch")
    before, _ = plain_scores(model, data.X_train, data.y_train)
    history = minimize_cross_entropy(model, data.X_train, data.y_train, optimizer, RATES[optimizer], steps=20)
    assert history["cross_entropy"][0] == pytest.approx(before)
    assert plain_scores(model, data.X_train, data.y_train)[0] < 0.99 * before
    assert history["sweep"] == list(range(1, 21))


def test_the_steps_are_those_of_plain_pytorch():
    data, ours = circle(train=50), fnn(3, 4, start="pytorch")
    theirs = copy.deepcopy(ours)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.02)
    for _ in range(7):
        adam.zero_grad()
        F.cross_entropy(theirs(data.X_train), data.y_train).backward()
        adam.step()
    minimize_cross_entropy(ours, data.X_train, data.y_train, "adam", 0.02, steps=7)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_muon_moves_vectors_too():
    model = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    before = [p.detach().clone() for p in model.parameters()]
    data = circle(train=50)
    minimize_cross_entropy(model, data.X_train, data.y_train, "muon", 0.02, steps=1)
    assert all(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_batches_are_those_of_fit_and_are_replaced():
    data = circle(train=60)
    seen: list[torch.Tensor] = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fnn(3, 4, start="pytorch")

        def forward(self, x):
            seen.append(x)
            return self.inner(x)

    options = {"batch_size": 8, "refresh_every": 2, "seed": 5}
    minimize_cross_entropy(Spy(), data.X_train, data.y_train, "adam", 0.01, steps=4, **options)
    drawn = []
    lysep.fit(
        fnn(3, 4),
        data.X_train,
        data.y_train,
        sweeps=4,
        callbacks=[lambda p: drawn.append(p.state.inputs)],
        **options,
    )
    assert all(torch.equal(a, b) for a, b in zip(seen, drawn, strict=True))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_a_run_ends_at_its_time_limit_at_a_callback_and_when_it_diverges():
    data = circle(train=100)

    def steps(optimizer, lr, **options):
        return len(minimize_cross_entropy(fnn(3, 10), data.X_train, data.y_train, optimizer, lr, 1000, **options))

    assert steps("adam", 0.01, time_limit=1e-9) == 1
    assert steps("adam", 0.01, callbacks=[lambda step: step.sweep == 3]) == 3
    assert steps("gd", 1e308) < 10


def test_an_unknown_optimizer_is_refused_by_name():
    data = circle(train=10)
    with pytest.raises(ValueError, match=r"optimizer='adamm' is unknown.*'adam'"):
        minimize_cross_entropy(fnn(3, 4), data.X_train, data.y_train, "adamm", 0.01, 1)


def test_the_score_is_that_of_plain_pytorch_in_pieces_too():
    X = torch.rand(25_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (X.sum(1) > 1).long()
    model = fnn(3, 5, start="xavier")
    expected = plain_scores(model, X, y)
    assert score(model, X, y) == pytest.approx(expected, rel=1e-12)


def test_a_model_that_returns_nan_is_never_right():
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.weight, float("nan"))
    result = score(broken, torch.ones(3, 2), torch.tensor([0, 1, 0]))
    assert result.cross_entropy != result.cross_entropy
    assert result.accuracy == 0.0


def test_lbfgs_by_single_iterations_is_pytorchs_own_and_evaluates_no_point_twice():
    data, ours = circle(train=200), fnn(3, 6, start="pytorch")
    theirs, seen = copy.deepcopy(ours), []
    ours.register_forward_hook(lambda *_: seen.append([p.detach().clone() for p in ours.parameters()]))
    minimize_cross_entropy(ours, data.X_train, data.y_train, "lbfgs-single", 1.0, steps=15)

    def closure():
        theirs.zero_grad()
        loss = F.cross_entropy(theirs(data.X_train), data.y_train)
        loss.backward()
        return loss

    options = {"history_size": 20, "line_search_fn": "strong_wolfe", "tolerance_grad": 0.0, "tolerance_change": 0.0}
    torch.optim.LBFGS(theirs.parameters(), 1.0, max_iter=15, max_eval=400, **options).step(closure)
    assert same([p.detach() for p in ours.parameters()], [p.detach() for p in theirs.parameters()])
    assert not any(same(a, b) for i, a in enumerate(seen) for b in seen[:i])


def test_lbfgs_remembers_nothing_of_an_earlier_batch():
    data, model, seen = circle(train=200), fnn(3, 6, start="pytorch"), []
    model.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    options = {"batch_size": 50, "refresh_every": 1}
    history = minimize_cross_entropy(model, data.X_train, data.y_train, "lbfgs-single", 1.0, 5, **options)
    firsts = [X for place, X in enumerate(seen) if place == 0 or X is not seen[place - 1]]
    assert len(firsts) == len(history) == 5
