"""Taking a model apart (network.py) and putting it together again (state.py)."""

import copy
import math
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

import lysep
from architectures import ACTIVATIONS, perturbed_aux, problems
from lysep.data import Batch
from lysep.network import parse
from lysep.state import forward, restart


def bits(model):
    """All parameters as bytes: equal also where they are NaN."""
    return torch.cat([torch.empty(0, dtype=torch.uint8), *(_bytes(p) for p in model.parameters())])


def _bytes(p):
    return p.detach().clone().reshape(-1).view(torch.uint8)


def linear_outputs(model, X):
    """What every Linear and Conv2d returns, seen by PyTorch's own forward hooks; the logits last."""
    seen = []
    linear = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    handles = [m.register_forward_hook(lambda module, args, out: seen.append(out.detach().clone())) for m in linear]
    model(X)
    for handle in handles:
        handle.remove()
    return seen


def data(in_shape, classes=3, samples=7, dtype=torch.float64):
    return torch.randn(samples, *in_shape, dtype=dtype), torch.arange(samples) % classes


def check_forward(model, X, y):
    state = lysep.separate(model, X, y)
    weights, biases = [*state.weights, state.head_weight], [*state.biases, state.head_bias]
    produced = forward(state.network, weights, biases, X)
    expected = linear_outputs(model, X)
    assert len(state.aux) + 1 == len(produced) == len(expected)
    for ours, theirs in zip([*state.aux, produced[-1]], expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def dense(*middle, width=4):
    return nn.Sequential(nn.Linear(2, 4), *middle, nn.Linear(width, 3))


def image(*modules, entries):
    return nn.Sequential(*modules, nn.Flatten(), nn.Linear(entries, 3))


# -- what is accepted --------------------------------------------------------------------------------------------------

TWO, ONE, DUO = (2,), (1, 6, 6), (2, 6, 6)  # shapes of a sample
ACT, SHARED, BLOCK = nn.Tanh(), nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())
ACCEPTED = {
    # id: (shape of a sample, model)
    "head without bias": (TWO, nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3, bias=False))),
    "no biases": (TWO, nn.Sequential(nn.Linear(2, 4, False), nn.Tanh(), nn.Linear(4, 3, False))),
    "nested": (TWO, nn.Sequential(nn.Sequential(nn.Linear(2, 4), nn.Sequential(nn.Tanh())), nn.Linear(4, 3))),
    "empty nested": (TWO, dense(nn.Sequential(), nn.Tanh())),
    "identities": (TWO, nn.Sequential(nn.Identity(), *dense(nn.Identity(), nn.ReLU()), nn.Identity())),
    "no activation": (TWO, dense()),
    "activation first": (TWO, nn.Sequential(nn.Sigmoid(), *dense(nn.Tanh()))),
    "in place": (TWO, dense(nn.ReLU(inplace=True))),
    "one activation object twice": (TWO, dense(ACT, nn.Linear(4, 4), ACT)),
    "flattened table": ((2, 3), nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))),
    "flatten of flat": (TWO, dense(nn.Flatten(), nn.Tanh(), nn.Flatten(1, -1))),
    "flatten, then activation": (ONE, nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Tanh(), nn.Linear(32, 3))),
    "stride": (DUO, image(nn.Conv2d(2, 3, 3, stride=(2, 1)), nn.Tanh(), entries=24)),
    "padding": (DUO, image(nn.Conv2d(2, 3, 3, padding=(2, 0)), nn.Tanh(), entries=96)),
    "dilation": (DUO, image(nn.Conv2d(2, 3, 2, dilation=(3, 2)), nn.Tanh(), entries=36)),
    "all three": (DUO, image(nn.Conv2d(2, 1, (3, 2), 2, 1, 2), nn.ELU(), entries=6)),
    "same, odd": (DUO, image(nn.Conv2d(2, 1, 3, padding="same"), nn.Tanh(), entries=36)),
    "same, even": (DUO, image(nn.Conv2d(2, 1, (2, 4), padding="same"), nn.Tanh(), entries=36)),
    "same, dilated": (DUO, image(nn.Conv2d(2, 1, (2, 3), padding="same", dilation=3), nn.Tanh(), entries=36)),
    "valid": (DUO, image(nn.Conv2d(2, 1, 3, padding="valid", stride=3), nn.Tanh(), entries=4)),
    "two convolutions": (ONE, image(nn.Conv2d(1, 2, 3, bias=False), nn.GELU(), nn.Conv2d(2, 1, 2), entries=9)),
    "pooled input": (ONE, image(nn.AvgPool2d(2), nn.Conv2d(1, 2, 2), nn.Tanh(), entries=8)),
    "overlapping pool": (ONE, image(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.AvgPool2d(3, 1, 1), entries=32)),
    "pool rounding up": (ONE, image(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.AvgPool2d(2, ceil_mode=True), entries=18)),
    "pool counts": (ONE, image(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2, 2, 1, count_include_pad=False), entries=18)),
    "pool divisor": (ONE, image(nn.Conv2d(1, 2, 3), nn.AvgPool2d((2, 1), divisor_override=5), entries=16)),
    "pools in a row": (ONE, image(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.AvgPool2d((1, 2)), entries=4)),
    "channels last": (DUO, image(nn.Conv2d(2, 3, 3), entries=48).to(memory_format=torch.channels_last)),
}


@pytest.mark.parametrize(("in_shape", "model"), ACCEPTED.values(), ids=ACCEPTED)
def test_supported_models_are_taken_apart_as_pytorch_runs_them(in_shape, model):
    check_forward(model.double(), *data(in_shape))


@pytest.mark.parametrize("make", ACTIVATIONS)
def test_every_activation_is_accepted_on_features_and_on_images(make):
    check_forward(dense(make(), nn.Linear(4, 4), make()).double(), *data((2,)))
    check_forward(image(nn.Conv2d(1, 2, 3), make(), nn.AvgPool2d(2), entries=8).double(), *data(ONE))


@given(problems())
def test_every_layer_of_a_random_network_is_the_one_that_pytorch_computes(problem):
    check_forward(problem.model, problem.X, problem.y)


def test_the_network_knows_its_places_biases_and_kind():
    body = OrderedDict(conv=nn.Conv2d(1, 2, 3, bias=False), act=nn.Tanh(), flat=nn.Flatten())
    model = nn.Sequential(OrderedDict(body=nn.Sequential(body), head=nn.Linear(32, 5)))
    network = parse(model, ONE)
    assert [layer.place for layer in network.layers] == ["body.conv", "head"]
    assert [layer.has_bias for layer in network.layers] == [False, True]
    assert [layer.activation.name for layer in network.layers] == ["Identity", "Tanh"]
    assert (network.depth, network.classes, network.in_shape) == (2, 5, ONE)
    assert (network.dtype, network.device) == (torch.float32, torch.device("cpu"))


# -- what is refused ---------------------------------------------------------------------------------------------------


class Chain(nn.Sequential):
    """A Sequential that is none: it adds its input again."""

    def forward(self, x):
        return x + super().forward(x)


def changed(change, model=None):
    model = dense(nn.Tanh()) if model is None else model
    change(model)
    return model


def tie(model):
    model[4].weight = model[2].weight


NORM, PLAIN = "standardize the inputs", "Use a plain nn.Linear"
DEEP = (nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
REFLECT = nn.Conv2d(1, 1, 3, padding_mode="reflect")
FLAT = "samples of shape (channels, height, width), but gets (2,)"
REFUSED = {
    # id: (shape of a sample, model, words of the message: where, what, what instead)
    "max pool": (ONE, image(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), entries=8), "module 1 (MaxPool2d", "Use nn.AvgPool2d"),
    "adaptive": (ONE, image(nn.AdaptiveAvgPool2d(2), entries=4), "module 0 (AdaptiveAvgPool2d", "Use nn.AvgPool2d"),
    "batch norm": (TWO, dense(nn.BatchNorm1d(4), nn.Tanh()), "module 1 (BatchNorm1d", NORM),
    "batch norm of images": (ONE, image(nn.BatchNorm2d(1), entries=36), "module 0 (BatchNorm2d", NORM),
    "layer norm": (TWO, dense(nn.Tanh(), nn.LayerNorm(4)), "module 2 (LayerNorm", NORM),
    "group norm": (ONE, image(nn.GroupNorm(1, 1), entries=36), "module 0 (GroupNorm", NORM),
    "dropout": (TWO, dense(nn.Tanh(), nn.Dropout(0.5)), "module 2 (Dropout", "Leave it out"),
    "softmax": (TWO, nn.Sequential(*dense(nn.Tanh()), nn.Softmax(1)), "module 3 (Softmax", "returns logits"),
    "log softmax": (TWO, nn.Sequential(*dense(nn.Tanh()), nn.LogSoftmax(1)), "module 3 (LogSoftmax", "returns logits"),
    "prelu": (TWO, dense(nn.PReLU()), "module 1 (PReLU", "nn.LeakyReLU"),
    "softplus": (TWO, dense(nn.Softplus(1.0, 5.0)), "module 1 (Softplus", "default threshold"),
    "unknown activation": (TWO, dense(nn.Hardtanh()), "module 1 (Hardtanh", "Supported: Linear, Conv2d", "Tanh"),
    "transposed": (ONE, image(nn.ConvTranspose2d(1, 1, 1), entries=36), "module 0 (ConvTranspose2d", "Supported:"),
    "two activations": (TWO, dense(nn.Tanh(), nn.ReLU()), "module 2 (ReLU", "after module 1 (Tanh)", "Keep one"),
    "two with an identity between": (TWO, dense(nn.Tanh(), nn.Identity(), nn.ReLU()), "module 3 (ReLU", "second"),
    "two with a flatten between": (TWO, dense(nn.Tanh(), nn.Flatten(), nn.ReLU()), "module 3 (ReLU", "second"),
    "two, nested": (TWO, dense(nn.Tanh(), nn.Sequential(nn.ReLU())), "module 2.0 (ReLU", "second"),
    "ends in an activation": (TWO, nn.Sequential(*dense(), nn.Tanh()), "ends with module 2 (Tanh", "head is missing"),
    "ends in a flatten": (TWO, nn.Sequential(*dense(), nn.Flatten()), "ends with module 2 (Flatten", "nn.Linear"),
    "ends in a convolution": (ONE, nn.Sequential(nn.Conv2d(1, 3, 6)), "ends with module 0 (Conv2d", "nn.Linear"),
    "only a head": (TWO, nn.Sequential(nn.Linear(2, 3)), "one linear layer, module 0 (Linear", "add a hidden layer"),
    "head on pixels": (ONE, image(nn.Tanh(), entries=36), "one linear layer, module 2 (Linear", "add a hidden layer"),
    "one output": (TWO, nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1)), "module 1 (Linear", "nn.Linear(4, 2)"),
    "empty": (TWO, nn.Sequential(), "the model is empty"),
    "only identities": (TWO, nn.Sequential(nn.Identity(), nn.Sequential()), "the model is empty"),
    "not a Sequential": (TWO, nn.Linear(2, 3), "model is a Linear, not an nn.Sequential", "nn.Sequential(...)"),
    "a list": (TWO, nn.ModuleList(dense()), "model is a ModuleList, not an nn.Sequential"),
    "own forward": (TWO, Chain(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), "model is a Chain, not an nn.Sequential"),
    "own forward, nested": (TWO, dense(nn.Sequential(Chain(nn.Linear(4, 4)))), "module 1.0 (Chain", "Supported:"),
    "own forward on the instance": (TWO, changed(lambda m: setattr(m, "forward", lambda x: -x)), "forward"),
    "own module": (TWO, dense(nn.Sequential(nn.Tanh(), nn.Bilinear(4, 4, 4))), "module 1.1 (Bilinear", "Supported:"),
    "groups": (DUO, image(nn.Conv2d(2, 2, 3, groups=2), entries=32), "module 0 (Conv2d", "groups=2", "Use groups=1"),
    "padding mode": (ONE, image(REFLECT, entries=16), "module 0 (Conv2d", "'reflect'", "Use padding_mode='zeros'"),
    "partial flatten": (ONE, nn.Sequential(nn.Flatten(2), nn.Linear(36, 3)), "module 0 (Flatten", "Use nn.Flatten()"),
    "linear on images": (ONE, nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)), "module 0 (Linear", "Put nn.Flatten()"),
    "linear on maps": (ONE, nn.Sequential(nn.Conv2d(1, 1, 3), nn.Linear(4, 3)), "module 1 (Linear", "(1, 4, 4)"),
    "convolution of features": (TWO, image(nn.Conv2d(1, 1, 1), entries=2), "module 0 (Conv2d", FLAT),
    "pooling of features": (TWO, nn.Sequential(nn.AvgPool2d(1), nn.Linear(2, 3)), "module 0 (AvgPool2d", FLAT),
    "features do not fit": (TWO, dense(nn.Tanh(), width=5), "module 2 (Linear", "takes 5 features, but gets 4"),
    "channels do not fit": (DUO, image(nn.Conv2d(3, 1, 1), entries=36), "module 0 (Conv2d", "3 channels, but gets 2"),
    "activation after pooling": (ONE, image(nn.AvgPool2d(2), nn.Tanh(), entries=9), "module 1 (Tanh", "in front of"),
    "too large a kernel": (ONE, image(nn.Conv2d(1, 1, 7), entries=1), "module 0 (Conv2d", "leaves nothing"),
    "too wide a dilation": (ONE, image(nn.Conv2d(1, 1, 2, dilation=6), entries=1), "module 0 (Conv2d", "nothing"),
    "too large a pool": (ONE, image(nn.AvgPool2d(7), entries=1), "module 0 (AvgPool2d", "does not fit", "(1, 6, 6)"),
    "shared": (TWO, dense(SHARED, nn.Tanh(), SHARED), "module 3 is module 1 again", "its own weights"),
    "shared, nested": (TWO, dense(nn.Sequential(SHARED), nn.Tanh(), SHARED), "module 3 is module 1.0 again"),
    "shared blocks": (TWO, dense(BLOCK, BLOCK), "module 2.0 is module 1.0 again"),
    "tied weights": (TWO, changed(tie, dense(*DEEP)), "module 4", "module 2", "its own"),
    "NaN": (TWO, changed(lambda m: m[0].bias.data[0].fill_(math.nan)), "bias of module 0 (Linear", "holds NaN"),
    "infinity": (TWO, changed(lambda m: m[2].weight.data[0].fill_(-math.inf)), "weight of module 2 (Linear"),
    "mixed dtypes": (TWO, changed(lambda m: m[2].double()), "several kinds", "float32", "float64", "model.to("),
    "half": (TWO, dense(nn.Tanh()).half(), "the model is in torch.float16", "model.float()"),
    "bfloat": (TWO, dense(nn.Tanh()).bfloat16(), "the model is in torch.bfloat16", "model.float()"),
    "reparametrized": (TWO, changed(lambda m: parametrizations.weight_norm(m[0])), "module 0 (Param", PLAIN),
    "lazy": (TWO, nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 3)), "module 0 (LazyLinear", "initialized"),
    "without memory": (TWO, dense(nn.Tanh()).to("meta"), "meta"),
    "inference tensors": (TWO, torch.inference_mode()(dense)(nn.Tanh()), "inference"),  # would fail when written to
}  # fmt: skip


class Never(lysep.Method):
    def sweep(self, iterate, memory):
        raise AssertionError("the method was called although the model is refused")


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_a_model_that_cannot_be_separated_is_refused_before_any_work(row):
    in_shape, model, *words = row
    initialized = not any(p.is_meta or nn.parameter.is_lazy(p) for p in model.parameters())
    before = bits(model) if initialized else None
    X, y = data(in_shape, dtype=torch.float32)
    for refuse in (lambda: lysep.fit(model, X, y, method=Never()), lambda: lysep.separate(model, X, y)):
        with pytest.raises(lysep.ModelError) as caught:
            refuse()
        assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert not initialized or torch.equal(bits(model), before)


def test_a_frozen_parameter_is_not_trained_but_may_be_looked_at():
    model = changed(lambda m: m[2].weight.requires_grad_(False))
    before, (X, y) = bits(model), data(TWO, dtype=torch.float32)
    with pytest.raises(lysep.ModelError, match=r"parameter 2.weight of the model is frozen.*Unfreeze it"):
        lysep.fit(model, X, y, method=Never())
    assert torch.equal(bits(model), before)
    assert lysep.separated_loss(lysep.separate(model, X, y)).cross_entropy > 0.0


@pytest.mark.parametrize("place", ["", "0", "1", "1.0", "1.1", "2"])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_anywhere_is_refused_because_it_would_be_passed_by(place, kind):
    model = nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Linear(4, 3))
    getattr(model.get_submodule(place), kind)(lambda module, args, out=None: None)
    with pytest.raises(lysep.ModelError, match=rf"{f'module {place} ' if place else ''}.*hooks.*Remove them"):
        lysep.separate(model, *data((2,), dtype=torch.float32))


def test_a_hook_that_was_removed_is_forgotten():
    model = dense(nn.Tanh()).double()
    model[1].register_forward_hook(lambda module, args, out: 2 * out).remove()
    check_forward(model, *data((2,)))


def test_a_refused_model_costs_one_sample_of_a_dataset():
    class Counted:
        loaded = ()

        def __len__(self):
            return 50

        def __getitem__(self, index):
            self.loaded = (*self.loaded, index)
            return torch.zeros(2), index % 3

    samples = Counted()
    with pytest.raises(lysep.ModelError, match="Dropout"):
        lysep.fit(dense(nn.Dropout()), samples)
    assert samples.loaded == (0,)


# -- state: separate, restart, write_back ------------------------------------------------------------------------------


def parameters_of(state):
    biases = [*state.biases, state.head_bias]
    pairs = zip([*state.weights, state.head_weight], biases, strict=True)
    return [p for pair in pairs for p in pair if p is not None]


@given(problems())
def test_separate_and_write_back_are_an_exact_round_trip(problem):
    state = lysep.separate(problem.model, problem.X, problem.y)
    other = copy.deepcopy(problem.model)
    for p in other.parameters():
        nn.init.normal_(p)
    lysep.write_back(state, other)
    assert torch.equal(bits(other), bits(problem.model))


@given(problems(), st.integers(0, 99))
def test_after_a_sweep_the_model_computes_what_the_state_says(problem, seed):
    state = lysep.separate(problem.model, problem.X, problem.y)
    aux = perturbed_aux(state, torch.Generator().manual_seed(seed), 0.1)
    state = lysep.sweep(lysep.separate(problem.model, problem.X, problem.y, aux))
    lysep.write_back(state, problem.model)
    for p, value in zip(problem.model.parameters(), parameters_of(state), strict=True):
        assert torch.equal(p, value)


def test_write_back_keeps_the_parameter_objects_and_their_memory():
    model = dense(nn.Tanh()).double()
    X, y = data((2,))
    nn.functional.cross_entropy(model(X), y).backward()
    before = [(p, p.data_ptr(), p.grad.clone()) for p in model.parameters()]
    state = lysep.sweep(lysep.separate(model, X, y))
    lysep.write_back(state, model)
    for (p, address, grad), now, value in zip(before, model.parameters(), parameters_of(state), strict=True):
        assert now is p
        assert now.data_ptr() == address
        assert now.requires_grad
        assert now.is_leaf
        assert torch.equal(now.grad, grad)
        assert torch.equal(now, value)
        assert now.data_ptr() != value.data_ptr()


WRONG = {
    "other head": lambda: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 4)),
    "other width": lambda: nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3)),
    "head without bias": lambda: nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3, bias=False)),
    "another layer": lambda: dense(nn.Tanh(), nn.Linear(4, 4)),
    "one layer less": lambda: nn.Sequential(nn.Linear(2, 4)),
    "a convolution": lambda: nn.Sequential(nn.Linear(2, 4), nn.Conv2d(4, 3, 1)),
    "not a Sequential": lambda: nn.Linear(2, 4),
}


@pytest.mark.parametrize("build", WRONG.values(), ids=WRONG)
def test_a_wrong_architecture_is_refused_and_not_half_written(build):
    state = lysep.separate(dense(nn.Tanh()), *data((2,), dtype=torch.float32))
    other = build()
    before = bits(other)
    with pytest.raises(lysep.ModelError, match=r"the model has|linear layer \d of the model|not an nn.Sequential"):
        lysep.write_back(state, other)
    assert torch.equal(bits(other), before)


def test_separate_only_reads_the_model_and_copies_what_it_reads():
    model = dense(nn.Tanh()).double().train()
    before = bits(model)
    state = lysep.separate(model, *data((2,)))
    for value in parameters_of(state):
        assert not value.requires_grad
        value.fill_(7.0)
    assert torch.equal(bits(model), before)
    assert model.training
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_aux_are_copied_and_checked():
    model, (X, y) = dense(nn.Tanh()).double(), data((2,))
    mine = torch.randn(7, 4, dtype=torch.float64)
    kept = mine.clone()
    state = lysep.separate(model, X, y, [mine])
    mine.zero_()
    assert torch.equal(state.aux[0], kept)
    for aux, message in [
        ([], "aux has 0 entries, but the model has 1 links"),
        ([kept, kept], "aux has 2 entries"),
        ([kept.T], r"aux\[0\] has shape \(4, 7\), but link 0 produces \(7, 4\)"),
        ([kept / 0.0], r"aux\[0\] holds NaN or infinite"),
    ]:
        with pytest.raises(ValueError, match=message):
            lysep.separate(model, X, y, aux)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (torch.full((4, 2), float("nan")), torch.arange(4) % 3, "X holds nan"),
        (torch.zeros(4, 2), None, "y is missing"),
        (torch.zeros(4, 2), torch.arange(4), "y holds label 3"),
        (torch.zeros(4, 2), torch.arange(3), "X has 4 samples, but y has 3 labels"),
    ],
)
def test_separate_checks_its_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        lysep.separate(dense(nn.Tanh()), X, y)


@given(problems(), st.integers(0, 99))
def test_restart_keeps_the_parameters_and_runs_the_new_samples_through(problem, seed):
    state = lysep.separate(problem.model, problem.X, problem.y)
    inconsistent = perturbed_aux(state, torch.Generator().manual_seed(seed))
    state = lysep.separate(problem.model, problem.X, problem.y, inconsistent)
    X, y = problem.X.flip(0)[1:], problem.y.flip(0)[1:]
    fresh = restart(state, Batch(X, y))
    for ours, theirs in zip(fresh.aux, linear_outputs(problem.model, X)[:-1], strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(parameters_of(fresh), problem.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(fresh.inputs, X)
    assert torch.equal(fresh.labels, y)
    assert all(torch.equal(a, b) for a, b in zip(state.aux, inconsistent, strict=True))
