import math

import pytest
import torch
from torch import nn

import lysep
from lysep.problems import circle, digits, fnn


def test_circle_is_the_papers():
    data = circle(seed=3)
    assert [len(part) for part in data] == [3000, 3000, 1000, 1000]
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        assert X.abs().max() <= 1
        assert torch.equal(y == 1, X[:, 0] ** 2 + X[:, 1] ** 2 <= 2 / math.pi)
        assert 0.45 < y.double().mean() < 0.55  # half of the square
        assert X.mean(0).abs().max() < 0.06
    assert len(torch.unique(torch.cat([data.X_train, data.X_test]), dim=0)) == 4000


def test_problems_and_networks_come_from_their_seed_alone():
    state = torch.get_rng_state()
    assert torch.equal(circle(5).X_train, circle(5).X_train)
    assert not torch.equal(circle(5).X_train, circle(6).X_train)
    assert torch.equal(digits(5).X_test, digits(5).X_test)
    a, b, c = (fnn(3, 10, seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), state)


def test_digits_are_split_without_overlap_or_loss():
    data = digits()
    assert len(data.X_train) + len(data.X_test) == 1797
    assert data.X_train.shape[1:] == (1, 8, 8)
    assert (data.X_train.min(), data.X_train.max()) == (0, 1)
    assert torch.bincount(data.y_train).min() > 100


@pytest.mark.parametrize("start", ["separation", "pytorch", "xavier"])
def test_networks_have_the_papers_shape_and_their_start(start):
    model = fnn(4, 7, inputs=3, classes=5, activation=nn.Sigmoid, start=start, dtype=torch.float32)
    assert [type(m).__name__ for m in model] == ["Linear", "Sigmoid"] * 3 + ["Linear"]
    assert model[-1].bias is None
    assert model(torch.zeros(2, 3)).shape == (2, 5)
    hidden = {"separation": 1.3 / 7**0.5, "pytorch": 1 / 7**0.5, "xavier": (6 / 14) ** 0.5}[start]
    assert 0.8 * hidden < model[2].weight.detach().abs().max() <= hidden


def test_the_circle_is_learned_at_depth_twenty():
    """The paper's figure after 10,000 iterations, in a hundred sweeps."""
    data, model = circle(), fnn(20, 10)
    history = lysep.fit(model, data.X_train, data.y_train, sweeps=100).history
    assert history["cross_entropy"][-1] <= 3.39e-2
    assert history["accuracy"][-1] >= 0.994


def test_digits_are_learned_by_two_convolutions_of_four_channels():
    data = digits()
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 50),
        nn.Tanh(),
        nn.Linear(50, 10),
    )
    history = lysep.fit(model, data.X_train, data.y_train, sweeps=150).history
    assert history["accuracy"][-1] >= 0.99
