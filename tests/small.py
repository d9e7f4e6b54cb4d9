"""A small problem, and things to watch a run with."""

import copy
import struct

import torch
from torch import nn
from torch.nn import functional as F

import lysep
from lysep import Fast
from lysep.methods import SweepLog


def network(seed=1, dtype=torch.float64, activation=nn.Tanh, classes=2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 6), activation(), nn.Linear(6, classes)).to(dtype)


def disk(samples=40, dtype=torch.float64):
    X = torch.rand(samples, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2 - 1
    return X.to(dtype), (X.norm(dim=1) < 0.8).long()


X, Y = disk()


def values(model_or_state):
    if isinstance(model_or_state, nn.Module):
        return [p.detach().clone() for p in model_or_state.parameters()]
    state = model_or_state
    biases = [*state.biases, state.head_bias]
    pairs = zip([*state.weights, state.head_weight], biases, strict=True)
    return [p.clone() for pair in pairs for p in pair if p is not None]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def plain_scores(model, X, y):
    """Cross-entropy and accuracy by PyTorch and by nothing of ours."""
    with torch.no_grad():
        logits = model(X)
        return float(F.cross_entropy(logits, y)), float((logits.argmax(1) == y).double().mean())


def model_of(state, like):
    model = copy.deepcopy(like)
    with torch.no_grad():
        for p, value in zip(model.parameters(), values(state), strict=True):
            p.copy_(value)
    return model.requires_grad_(False)


class Recorder:
    """A callback that keeps every Progress."""

    def __init__(self):
        self.seen = []

    def __call__(self, progress):
        self.seen.append(progress)

    @property
    def inputs(self):
        return [p.state.inputs for p in self.seen]


class Samples:
    """An indexable dataset that counts; with labels it yields pairs."""

    def __init__(self, X, y=None, poison=None):
        self.X, self.y, self.loaded, self.poison = X, y, [], poison

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        self.loaded.append(index)
        x = self.X[index]
        if self.poison is not None and len(self.loaded) > self.poison[0]:
            x = torch.full_like(x, self.poison[1])
        return x if self.y is None else (x, self.y[index])


class Method(lysep.Method):
    """A method made of a function of (iterate, number of the call)."""

    def __init__(self, function):
        self.function, self.iterates = function, []

    def sweep(self, iterate, memory):
        self.iterates.append(iterate)
        return self.function(iterate, len(self.iterates)), memory, SweepLog()


def by_the_paper(iterate, call):
    return lysep.Paper().sweep(iterate, {})[0]


def bits(tensors):
    return [(t.shape, t.detach().numpy().tobytes()) for t in tensors]


def outcome(result):
    """All that has to be equal, to the last bit; everything but the clock."""
    columns = result.history.to_dict()
    del columns["seconds"]
    rows = {name: [(type(v), struct.pack("<d", v)) for v in column] for name, column in columns.items()}
    return result.status, result.kept_sweep, result.remarks, rows, bits(values(result.model))


def point_of(model, X, y, sample_weight=None):
    return Fast().evaluate(lysep.separate(model, X, y, sample_weight=sample_weight))


def run(point, sweeps, memory=None, method=None):
    """Points and memories of some sweeps, the first ones included."""
    method = method or Fast(start="given")
    if memory is None:
        point, memory = method.begin(point)
    seen = [(point, memory)]
    for _ in range(sweeps):
        point, memory, _ = method.sweep(point, memory)
        seen.append((point, memory))
    return seen
