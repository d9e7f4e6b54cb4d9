import math

import pytest
import torch
from torch import nn

import lysep
from lysep.problems import circle, cnn, digits, fnn


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


@pytest.mark.parametrize("convolutions", [2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_convolutional_networks_have_the_papers_shape(convolutions, channels):
    model = cnn(convolutions, channels)
    layers = [m for m in model if isinstance(m, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in layers] == [(1, channels)] + [(channels, channels)] * len(
        layers[1:]
    )
    assert len(layers) == convolutions
    assert all((c.kernel_size, c.stride) == ((3, 3), (1, 1)) for c in layers)
    assert all(m.kernel_size == 2 for m in model if isinstance(m, nn.AvgPool2d))
    hidden, head = (m for m in model if isinstance(m, nn.Linear))
    assert (hidden.in_features, hidden.out_features) == (49 * channels, 50)  # the same for every number of convolutions
    assert (head.in_features, head.out_features, head.bias) == (50, 10, None)
    assert sum(isinstance(m, nn.Tanh) for m in model) == convolutions + 1
    assert model(torch.zeros(3, 1, 28, 28, dtype=torch.float64)).shape == (3, 10)


def test_convolutional_networks_start_from_their_seed_with_the_fan_in_of_a_patch():
    state = torch.get_rng_state()
    model, again, other = (cnn(3, 4, start="pytorch", seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))
    assert not torch.equal(model[0].weight, other[0].weight)
    assert torch.equal(torch.get_rng_state(), state)
    for layer, fan_in in ((model[0], 9), (model[3], 36), (model[9], 196)):
        for parameter in (layer.weight, layer.bias):
            assert parameter.detach().abs().max() <= fan_in**-0.5
        assert layer.weight.detach().abs().max() > 0.9 * fan_in**-0.5
    small = cnn(2, 4, image=(1, 8, 8), start="xavier", dtype=torch.float32)
    bound = (6 / (36 + 36)) ** 0.5
    assert 0.9 * bound < small[3].weight.detach().abs().max() <= bound
    assert small(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(ValueError, match="start='none' is unknown"):
        cnn(2, 1, start="none")


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
