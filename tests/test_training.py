"""The loop over sweeps (training.py) and the data it runs on (data.py)."""

import copy
import math
import random
import time
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

import lysep
from architectures import problems
from lysep import Status
from lysep.methods import SweepLog

COLUMNS = [
    *("sweep", "batch", "objective", "separated_loss", "cross_entropy", "accuracy", "bound", "seconds"),
    *("rejected_updates", "line_search_evaluations"),
]
VALIDATION = ["validation_cross_entropy", "validation_accuracy"]


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
    return model


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


class Method:
    """A method made of a function of (iterate, number of the call)."""

    def __init__(self, function):
        self.function, self.iterates = function, []

    def sweep(self, iterate):
        self.iterates.append(iterate)
        return self.function(iterate, len(self.iterates)), SweepLog()


def by_the_paper(iterate, call):
    return lysep.Paper().sweep(iterate)[0]


# -- what is recorded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validation", [None, (X[:9], Y[:9])])
def test_the_history_has_one_row_a_sweep_and_all_columns(validation):
    history = lysep.fit(network(), X, Y, sweeps=7, validation=validation).history
    assert list(history) == COLUMNS + (VALIDATION if validation else [])
    assert history["sweep"] == [1, 2, 3, 4, 5, 6, 7]
    assert history["batch"] == [1] * 7
    assert sorted(history["seconds"]) == history["seconds"]
    assert all(trials >= 1 for trials in history["line_search_evaluations"])


@given(problems(min_samples=6))
def test_the_objective_never_rises_in_a_batch_and_the_bound_holds(problem):
    for options in ({}, {"batch_size": 4, "refresh_every": 3}):
        model = copy.deepcopy(problem.model)
        history = lysep.fit(model, problem.X, problem.y, sweeps=7, **options).history
        rows = [history.row(i) for i in range(len(history))]
        assert all(row["cross_entropy"] <= row["bound"] for row in rows)
        for earlier, later in zip(rows, rows[1:], strict=False):
            assert later["batch"] != earlier["batch"] or later["objective"] <= earlier["objective"]


@given(problems())
def test_the_last_row_is_the_returned_model_by_plain_pytorch(problem):
    before = values(problem.model)
    result = lysep.fit(problem.model, problem.X, problem.y, sweeps=4, validation=(problem.X[:3], problem.y[:3]))
    assert result.model is problem.model
    assert not same(before, values(problem.model)) or result.status is Status.STALLED
    last = result.history.row(-1)
    loss, accuracy = plain_scores(problem.model, problem.X, problem.y)
    assert (last["cross_entropy"], last["accuracy"]) == pytest.approx((loss, accuracy), rel=1e-9, abs=1e-12)
    loss, accuracy = plain_scores(problem.model, problem.X[:3], problem.y[:3])
    found = last["validation_cross_entropy"], last["validation_accuracy"]
    assert found == pytest.approx((loss, accuracy), rel=1e-9, abs=1e-12)


def test_every_row_is_the_state_of_its_sweep_by_plain_pytorch():
    seen, model, held_out = Recorder(), network(), disk(17)
    history = lysep.fit(
        model, X, Y, sweeps=6, batch_size=20, refresh_every=2, validation=held_out, callbacks=[seen]
    ).history
    assert [p.sweep for p in seen.seen] == history["sweep"]
    for place, progress in enumerate(seen.seen):
        row, state = history.row(place), progress.state
        assert progress.row == row
        then = model_of(state, model)
        found = row["cross_entropy"], row["accuracy"]
        assert found == pytest.approx(plain_scores(then, state.inputs, state.labels), rel=1e-12)
        assert [row[name] for name in VALIDATION] == pytest.approx(plain_scores(then, *held_out), rel=1e-12)
        assert row["objective"] == pytest.approx(20 * row["separated_loss"] ** 2, rel=1e-12)
    assert same(values(seen.seen[-1].state), values(model))


@given(problems())
def test_k_sweeps_by_hand_are_a_fit_of_k_sweeps_bit_for_bit(problem):
    state = lysep.separate(problem.model, problem.X, problem.y)
    for _ in range(4):
        state = lysep.sweep(state)
    lysep.fit(problem.model, problem.X, problem.y, sweeps=4)
    assert same(values(state), values(problem.model))


def test_it_learns():
    assert lysep.fit(network(), X, Y, sweeps=150).history["accuracy"][-1] > 0.95


# -- reproducibility, and what is left alone ---------------------------------------------------------------------------


def run(seed=0, **options):
    seen, model = Recorder(), network()
    options = {"sweeps": 6, "batch_size": 10, "refresh_every": 2, "seed": seed, "callbacks": [seen]} | options
    columns = lysep.fit(model, X, Y, **options).history.to_dict()
    del columns["seconds"]
    return columns, values(model), seen.inputs


def test_the_same_seed_gives_the_same_run_and_another_seed_other_batches():
    first, second, other = run(3), run(3), run(4)
    assert first[0] == second[0]
    assert same(first[1], second[1])
    assert same(first[2], second[2])
    assert not same(first[2], other[2])
    assert run(np.int64(3))[0] == first[0]


def test_the_global_random_states_are_not_touched_and_not_used():
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    model = copy.deepcopy(network())
    torch.set_rng_state(kept[0])
    lysep.fit(model, X, Y, sweeps=4, batch_size=10, refresh_every=1)
    assert torch.equal(torch.get_rng_state(), kept[0])
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), kept[1], strict=True))  # noqa: NPY002
    assert random.getstate() == kept[2]
    torch.manual_seed(99)
    columns, _, _ = run()
    torch.manual_seed(100)
    assert columns == run()[0]


def test_data_flags_and_gradients_are_left_alone():
    model, data = network().eval(), (X.clone(), Y.clone())
    F.cross_entropy(model(X), Y).backward()
    gradients, addresses = [p.grad.clone() for p in model.parameters()], [p.data_ptr() for p in model.parameters()]
    lysep.fit(model, *data, sweeps=3)
    assert same(data, (X, Y))
    assert not model.training
    assert same(gradients, [p.grad for p in model.parameters()])
    assert addresses == [p.data_ptr() for p in model.parameters()]
    assert all(p.requires_grad for p in model.parameters())


# -- forms of data -----------------------------------------------------------------------------------------------------


class Frame:
    """What a pandas frame or series offers, as far as it matters."""

    def __init__(self, values):
        self._values = values

    def to_numpy(self):
        return self._values

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __len__(self):
        return len(self._values)

    def __getitem__(self, column):
        raise KeyError(column)  # integers are no columns


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def reversed_view(array):
    return array[::-1].copy()[::-1]


def memmap(tmp_path):
    X.numpy().tofile(tmp_path / "X")
    return np.memmap(tmp_path / "X", np.float64, "r", shape=tuple(X.shape))


A, B = X.numpy(), Y.numpy()
FORMS = {
    "arrays": (A, B),
    "lists": (X.tolist(), Y.tolist()),
    "tuples": (tuple(map(tuple, X.tolist())), tuple(Y.tolist())),
    "lists of tensors": (list(X), list(Y)),
    "lists of arrays": (list(A), list(B)),
    "part of a graph": (X.clone().requires_grad_() * 1.0, Y),
    "lists, part of a graph": (list(X.clone().requires_grad_()), Y),
    "not contiguous": (X.T.contiguous().T, torch.stack([Y, Y], 1)[:, 0]),
    "frames": (Frame(A), Frame(B)),
    "read only": (read_only(A), read_only(B)),
    "reversed views": (reversed_view(A), reversed_view(B)),
    "other byte order": (A.astype(">f8"), B.astype(">i8")),
    "Fortran order": (np.asfortranarray(A), B),
    "pairs": (TensorDataset(X, Y), None),
    "subset of pairs": (Subset(TensorDataset(X.repeat(2, 1), Y.repeat(2)), list(range(40))), None),
    "pairs of arrays": (Samples(A, B), None),
    "indexable and labels": (Samples(X), Y),
    "indexable of lists": (Samples(X.tolist()), B),
    **{f"labels in {t}": (X, B.astype(t)) for t in ("int8", "uint8", "int32", "uint16", "uint32", "uint64")},
}


@pytest.mark.parametrize("options", [{}, {"batch_size": 10, "refresh_every": 2}], ids=["all", "batches"])
@pytest.mark.parametrize("form", [*FORMS.values(), memmap], ids=[*FORMS, "memmap"])
def test_the_form_of_the_data_makes_no_difference(form, options, tmp_path):
    data = (memmap(tmp_path), Y) if form is memmap else form
    model, expected = network(), network()
    lysep.fit(model, *data, sweeps=4, **options)
    lysep.fit(expected, X, Y, sweeps=4, **options)
    assert same(values(model), values(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("convert", [lambda x: x.float(), lambda x: x.double().numpy(), lambda x: (x * 9).int()])
def test_the_model_keeps_its_dtype_whatever_the_data_are_in(dtype, convert):
    model, seen = network(dtype=dtype), Recorder()
    result = lysep.fit(model, convert(X), Y, sweeps=3, callbacks=[seen], validation=(convert(X), Y))
    assert result.status is Status.COMPLETED
    state = seen.seen[-1].state
    for tensor in [*model.parameters(), state.inputs, *state.aux, *values(state)]:
        assert tensor.dtype == dtype


@pytest.mark.parametrize("pairs", [True, False])
def test_of_a_dataset_only_the_batch_is_loaded(pairs):
    samples, loaded = Samples(X, Y if pairs else None), []
    options = {"sweeps": 6, "batch_size": 5, "refresh_every": 2}
    callbacks = [lambda progress: loaded.append(len(samples.loaded))]
    lysep.fit(network(), samples, None if pairs else Y, callbacks=callbacks, **options)
    assert loaded == [6, 6, 11, 11, 16, 16]  # the first sample once more, for its shape
    for start in (1, 6, 11):
        assert len(set(samples.loaded[start : start + 5])) == 5


# -- batches -----------------------------------------------------------------------------------------------------------


def test_batches_change_when_they_are_due_and_hold_distinct_samples():
    columns, _, inputs = run(sweeps=8, refresh_every=3)
    assert columns["batch"] == [1, 1, 1, 2, 2, 2, 3, 3]
    for earlier, later, same_batch in zip(inputs, inputs[1:], [1, 1, 0, 1, 1, 0, 1], strict=False):
        assert torch.equal(earlier, later) == bool(same_batch)
    rows = {tuple(x): label for x, label in zip(X.tolist(), Y.tolist(), strict=True)}
    for batch in inputs:
        drawn = [tuple(x) for x in batch.tolist()]
        assert len(set(drawn)) == len(drawn) == 10
        assert set(drawn) <= rows.keys()


def test_a_batch_brings_its_own_labels():
    seen = Recorder()
    lysep.fit(network(), X, Y, sweeps=4, batch_size=10, refresh_every=1, callbacks=[seen])
    for progress in seen.seen:
        assert torch.equal(progress.state.labels, (progress.state.inputs.norm(dim=1) < 0.8).long())


def test_a_new_batch_starts_from_the_last_parameters_without_gaps():
    seen, spy = Recorder(), Method(by_the_paper)
    lysep.fit(network(), X, Y, method=spy, sweeps=5, batch_size=10, refresh_every=2, callbacks=[seen])
    for call in (0, 2, 4):  # counted from 0: the sweeps that begin a batch
        state = spy.iterates[call].state
        then = model_of(state, network())
        squares = F.cross_entropy(then(state.inputs), state.labels, reduction="none").square().sum()
        assert spy.iterates[call].objective == pytest.approx(float(squares), rel=1e-12)
        assert call == 0 or same(values(state), values(seen.seen[call - 1].state))


def test_a_batch_of_everything_is_a_permutation():
    *_, inputs = run(batch_size=40, sweeps=1)
    assert sorted(inputs[0].tolist()) == sorted(X.tolist())
    assert not torch.equal(inputs[0], X)
