"""Where `method="fast"` starts from: rescaled from the data, or as it was given (methods/start.py)."""

import copy

import pytest
import torch
from torch import nn

import lysep
from lysep import Fast
from lysep.problems import circle, fnn
from small import X, Y, network, plain_scores, point_of


def spreads(model, X):
    """Standard deviations of the pre-activations, layer by layer, by plain PyTorch."""
    found, z = [], X
    with torch.no_grad():
        for module in model:
            z = module(z)
            if isinstance(module, nn.Linear | nn.Conv2d):
                found.append(z.transpose(0, 1).flatten(1).std(1, correction=0))
    return found[:-1]


def test_a_measured_start_gives_every_hidden_unit_its_spread():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(108, 5, bias=False), nn.ReLU(), nn.Linear(5, 4)),
        *(nn.Tanh(), nn.Linear(4, 2)),
    ).double()
    images = torch.rand(50, 1, 8, 8, dtype=torch.float64) * 255.0
    given = point_of(model, images, Y[:50].repeat(2)[:50])
    begun, _ = Fast(start="measured").begin(given)
    started = copy.deepcopy(model)
    lysep.write_back(begun.state, started)
    for spread in spreads(started, images):
        torch.testing.assert_close(spread, torch.full_like(spread, 0.35))
    assert torch.equal(begun.weights[-1], given.weights[-1])
    with torch.no_grad():
        assert float(started[0](images).mean((0, 2, 3)).abs().max()) <= 0.3
    assert Fast(start="measured").remarks(given, begun) == (
        "start: 3 of 3 hidden layers rescaled from the data (as asked)",
    )


@pytest.mark.parametrize("depth", [20, 50])
def test_collapsed_features_are_rescaled_and_the_result_says_so(depth):
    data = circle(train=400)
    model = fnn(depth, 10, start="pytorch")
    assert float(spreads(model, data.X_train)[-1].max()) < 1e-3
    result = lysep.fit(model, data.X_train, data.y_train, sweeps=1)
    (remark,) = result.remarks
    assert remark.startswith("start: ")
    assert f"of {depth - 1} hidden layers rescaled from the data" in remark
    assert remark in repr(result)
    assert float(spreads(model, data.X_train)[-1].median()) > 0.05


def test_saturated_features_are_rescaled():
    model = network(seed=0)
    with torch.no_grad():
        model[0].weight.mul_(1e4)
    (remark,) = lysep.fit(model, X, Y, sweeps=1).remarks
    assert "1 of 1 hidden layers" in remark


def test_usual_starts_of_shallow_networks_are_left_as_they_are():
    result = lysep.fit(network(), X, Y, sweeps=1)
    assert result.remarks == ()
    given = point_of(network(), X, Y)
    assert Fast().begin(given)[0] is given


def test_given_is_never_touched_and_other_starts_are_refused():
    given = point_of(fnn(30, 5, start="pytorch"), X, Y)
    assert Fast(start="given").begin(given)[0] is given
    with pytest.raises(ValueError, match="start='best' is unknown"):
        Fast(start="best")


@pytest.mark.parametrize("activation", [nn.Tanh, nn.Sigmoid, nn.ReLU])
def test_a_trained_model_is_never_rescaled(activation):
    """Also where its features look collapsed or saturated: a model that has learned something is good as it is."""
    data = circle(train=400)
    model = fnn(3, 10, activation=activation, start="xavier")
    lysep.fit(model, data.X_train, data.y_train, sweeps=40)
    assert plain_scores(model, data.X_train, data.y_train)[1] > 0.9
    with torch.no_grad():  # the same function, with features a thousand times smaller behind the last activation
        if activation is nn.ReLU:
            model[2].weight.mul_(1e-3), model[2].bias.mul_(1e-3), model[4].weight.mul_(1e3)
    given = point_of(model, data.X_train, data.y_train)
    assert Fast().begin(given)[0] is given


@pytest.mark.parametrize("samples", [1, 5])
def test_samples_of_one_class_say_nothing_of_what_a_model_has_learned(samples):
    data, model = circle(train=400), fnn(3, 10)
    lysep.fit(model, data.X_train, data.y_train, sweeps=15)
    chosen = data.y_train == 0
    given = point_of(model, data.X_train[chosen][:samples], data.y_train[chosen][:samples])
    assert Fast().begin(given)[0] is given
