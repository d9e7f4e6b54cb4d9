"""The loop over sweeps (training.py) and the data it runs on (data.py)."""

import copy
import math
import random
import re
import time
from itertools import pairwise

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
        for earlier, later in pairwise(rows):
            assert later["batch"] != earlier["batch"] or later["objective"] <= earlier["objective"]


@given(problems())
def test_the_last_row_is_the_returned_model_by_plain_pytorch(problem):
    result = lysep.fit(problem.model, problem.X, problem.y, sweeps=4, validation=(problem.X[:3], problem.y[:3]))
    assert result.model is problem.model
    last = result.history.row(-1)
    # Nearly collinear features make weights of 1e13, and these make rounding errors of 1e-3.
    amplified = math.prod(1.0 + float(p.norm()) for p in values(problem.model))
    for found, count in [(last["cross_entropy"], None), (last["validation_cross_entropy"], 3)]:
        expected, _ = plain_scores(problem.model, problem.X[:count], problem.y[:count])
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14 * amplified)


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


def test_the_seed_may_be_a_numpy_integer():
    assert run(np.int64(3))[0] == run(3)[0]


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
    for ours, theirs in zip(values(model), values(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)  # the layout in memory changes rounding


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
    kept = [torch.equal(earlier, later) for earlier, later in pairwise(inputs)]
    assert kept == [True, True, False, True, True, False, True]
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


# -- how a run ends ----------------------------------------------------------------------------------------------------


def at(sweep, action):
    """A callback that does something at one sweep."""
    return lambda progress: action() if progress.sweep == sweep else None


def interrupt():
    raise KeyboardInterrupt


def check_end(result, status, sweeps, state=None):
    assert result.status is status
    assert result.history["sweep"] == list(range(1, sweeps + 1))
    assert state is None or same(values(result.model), values(state))


def test_all_the_sweeps():
    seen = Recorder()
    check_end(lysep.fit(network(), X, Y, sweeps=5, callbacks=[seen]), Status.COMPLETED, 5, seen.seen[-1].state)


@pytest.mark.parametrize("answer", [True, np.True_, torch.tensor(True)], ids=["True", "NumPy", "PyTorch"])
def test_a_callback_that_answers_true_ends_the_run(answer):
    first, last = Recorder(), Recorder()
    result = lysep.fit(network(), X, Y, sweeps=9, callbacks=[first, at(4, lambda: answer), last])
    check_end(result, Status.STOPPED, 4, last.seen[-1].state)
    assert len(first.seen) == len(last.seen) == 4


@pytest.mark.parametrize("answer", [None, False, 0, np.False_, "a string", [1], np.ones(3)])
def test_other_answers_of_a_callback_mean_nothing(answer):
    check_end(lysep.fit(network(), X, Y, sweeps=3, callbacks=[lambda progress: answer]), Status.COMPLETED, 3)


def test_an_exception_in_a_callback_comes_out_and_the_model_stays():
    model = network()
    with pytest.raises(ZeroDivisionError):
        lysep.fit(model, X, Y, sweeps=9, callbacks=[at(3, lambda: 1 / 0)])
    assert same(values(model), values(network()))


def test_ctrl_c_keeps_the_state_of_that_sweep():
    seen = Recorder()
    result = lysep.fit(network(), X, Y, sweeps=9, callbacks=[seen, at(3, interrupt)])
    check_end(result, Status.INTERRUPTED, 3, seen.seen[-1].state)


def test_ctrl_c_in_the_middle_of_a_sweep_keeps_the_one_before():
    seen = Recorder()
    spy = Method(lambda it, call: by_the_paper(it, call) if call < 4 else interrupt())
    result = lysep.fit(network(), X, Y, method=spy, sweeps=9, callbacks=[seen])
    check_end(result, Status.INTERRUPTED, 3, seen.seen[-1].state)


def test_the_time_limit_ends_the_run_after_the_sweep_that_passes_it():
    seen = Recorder()
    callbacks = [lambda progress: time.sleep(0.02), seen]
    result = lysep.fit(network(), X, Y, sweeps=10**6, time_limit=0.1, callbacks=callbacks)
    late = [seconds >= 0.1 for seconds in result.history["seconds"]]
    check_end(result, Status.TIME_LIMIT, late.index(True) + 1, seen.seen[-1].state)


def test_the_tolerance_ends_the_run_when_ten_sweeps_gain_too_little():
    result = lysep.fit(network(), X, Y, sweeps=2000, tolerance=0.02)
    S = result.history["objective"]
    assert result.status is Status.TOLERANCE
    assert [S[i - 10] - S[i] < 0.02 * S[i - 10] for i in range(10, len(S))] == [False] * (len(S) - 11) + [True]


def test_the_tolerance_compares_sweeps_of_one_batch_only():
    options = {"sweeps": 30, "tolerance": 0.999999, "batch_size": 10}
    check_end(lysep.fit(network(), X, Y, refresh_every=10, **options), Status.COMPLETED, 30)
    check_end(lysep.fit(network(), X, Y, refresh_every=11, **options), Status.TOLERANCE, 11)


def test_a_method_that_cannot_gain_any_more_stalls_but_a_new_batch_may_help():
    idle = Method(lambda it, call: it)
    check_end(lysep.fit(network(), X, Y, method=idle, sweeps=9), Status.STALLED, 1)
    late = Method(lambda it, call: by_the_paper(it, call) if call < 3 else it)
    check_end(lysep.fit(network(), X, Y, method=late, sweeps=9), Status.STALLED, 3)
    result = lysep.fit(network(), X, Y, method=idle, sweeps=9, batch_size=10, refresh_every=2)
    check_end(result, Status.COMPLETED, 9)
    assert same(values(result.model), values(network()))


def broken(it, call):
    """Good for two sweeps, then an iterate whose objective is not finite."""
    return by_the_paper(it, call) if call < 3 else it.with_aux(0, it.aux[0] * math.inf)


def test_a_method_that_returns_what_is_not_finite_does_not_reach_the_model():
    seen = Recorder()
    result = lysep.fit(network(), X, Y, method=Method(broken), sweeps=9, callbacks=[seen])
    check_end(result, Status.NON_FINITE, 2, seen.seen[-1].state)
    assert not same(values(result.model), values(network()))


def test_a_model_that_overflows_at_the_start_is_returned_as_it_was():
    result = lysep.fit(network(activation=nn.ReLU), X * 1e300, Y)
    check_end(result, Status.NON_FINITE, 0)
    assert same(values(result.model), values(network(activation=nn.ReLU)))


@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e300], ids=["NaN", "infinite", "overflows in the model"])
def test_a_later_batch_that_is_not_finite_keeps_the_last_good_state(value):
    samples, seen = Samples(X, Y, poison=(1 + 10, value)), Recorder()
    result = lysep.fit(network(activation=nn.ReLU), samples, sweeps=9, batch_size=10, refresh_every=3, callbacks=[seen])
    check_end(result, Status.NON_FINITE, 3, seen.seen[-1].state)


def test_an_exception_while_a_batch_loads_comes_out_and_the_model_stays():
    class Failing(Samples):
        def __getitem__(self, index):
            if len(self.loaded) > 15:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    model = network()
    with pytest.raises(OSError, match="the disk is gone"):
        lysep.fit(model, Failing(X, Y), sweeps=9, batch_size=10, refresh_every=3)
    assert same(values(model), values(network()))


def test_every_status_says_what_happened_in_words():
    messages = [status.message for status in Status]
    assert len(set(messages)) == len(messages) == 7
    assert all(len(message.split()) >= 4 for message in messages)
    result = lysep.fit(network(), X, Y, sweeps=2)
    assert repr(result).startswith("FitResult(status=COMPLETED: ran all the sweeps")
    assert "History(2 sweeps" in repr(result)


def test_the_method_that_is_passed_is_the_one_that_runs():
    spy, lipschitz = Method(by_the_paper), network()
    lysep.fit(network(), X, Y, method=spy, sweeps=3)
    assert len(spy.iterates) == 3
    history = lysep.fit(lipschitz, X, Y, method=lysep.Paper(step="lipschitz"), sweeps=3).history
    assert history["line_search_evaluations"] == [0, 0, 0]


@pytest.mark.parametrize("progress", [True, False])
def test_a_progress_bar_is_shown_on_request_only(progress, capfd):
    lysep.fit(network(), X, Y, sweeps=5, progress=progress)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert ("5/5" in shown.err and "accuracy=" in shown.err) if progress else shown.err == ""


# -- bad input ---------------------------------------------------------------------------------------------------------


def holding(value, place=(7, 1)):
    changed = X.clone()
    changed[place] = value
    return changed


def labels(value, dtype=torch.long):
    changed = Y.clone().to(dtype)
    changed[3] = value
    return changed


ONE_HOT, COUNT, POSITIVE = F.one_hot(Y), "must be a positive integer", "must be a positive number"
RAGGED, TRIPLES = [[1.0, 2.0], [0.0]] * 20, TensorDataset(X, Y, Y)
BAD = {
    # id: (what is passed instead, words of the message)
    "NaN": ({"X": holding(math.nan)}, "X holds nan", "sample 7", "drop or impute"),
    "infinity": ({"X": holding(-math.inf)}, "X holds -inf", "sample 7", "drop or impute"),
    "too large for float32": ({"X": holding(1e300), "model": network(dtype=torch.float32)}, "X holds", "float32"),
    "NaN beyond the first batch": ({"X": holding(math.nan), "batch_size": 1}, "X holds nan", "sample 7"),
    "NaN in a list": ({"X": holding(math.nan).tolist()}, "X holds nan", "sample 7"),
    "NaN in a dataset": ({"X": Samples(holding(math.nan), Y), "y": None, "batch_size": 40}, "X holds nan", "sample 7"),
    "label too large": ({"y": labels(2)}, "y holds label 2", "2 outputs", "0 … 1"),
    "negative label": ({"y": labels(-1)}, "y holds label -1", "0 … 1"),
    "float labels": ({"y": Y.double()}, "y holds torch.float64", "integers", "y.long()"),
    "bool labels": ({"y": Y.bool().numpy()}, "y holds torch.bool", "y.astype(int)"),
    "one-hot": ({"y": ONE_HOT}, "y has shape (40, 2)", "y.argmax(1)"),
    "column": ({"y": Y.numpy()[:, None]}, "y has shape (40, 1)", "y.ravel()"),
    "string labels": ({"y": ["a", "b"] * 20}, "y is not an array of numbers"),
    "float labels of a dataset": ({"X": TensorDataset(X, Y + 0.5), "y": None}, "y holds", "integers"),
    "string labels of a dataset": ({"X": Samples(X, ["a", "b"] * 20), "y": None}, "y is not an array of numbers"),
    "labels None of a dataset": ({"X": Samples(X, [None] * 40), "y": None}, "y is not an array of numbers"),
    "one-hot of a dataset": ({"X": TensorDataset(X, ONE_HOT), "y": None}, "y ", "argmax"),
    "one class": ({"y": Y * 0 + 1}, "y holds one class only (1)", "at least two"),
    "too few labels": ({"y": Y[:-1]}, "X has 40 samples, but y has 39 labels"),
    "too few labels of a dataset": ({"X": Samples(X), "y": Y[:-1]}, "X has 40 samples, but y has 39 labels"),
    "y missing": ({"y": None}, "y is missing", "integers 0 … classes−1"),
    "y missing, array": ({"X": X.numpy(), "y": None}, "y is missing"),
    "no pairs": ({"X": Samples(X), "y": None}, "y is missing and X[0] is a Tensor", "Pass y"),
    "triples": ({"X": TRIPLES, "y": None}, "X[0] is a tuple, not a (features, label) pair"),
    "empty": ({"X": X[:0], "y": Y[:0]}, "X is empty"),
    "empty dataset": ({"X": Samples(X[:0], Y), "y": None}, "X is empty"),
    "1-D": ({"X": X[:, 0]}, "X has shape (40,)", "one row a sample"),
    "0-D": ({"X": 3.0}, "X has shape ()", "one row a sample"),
    "features do not fit": ({"X": torch.rand(40, 3)}, "module 0 (Linear", "takes 2 features, but gets 3"),
    "images": ({"X": torch.rand(40, 1, 2, 1)}, "module 0 (Linear", "Put nn.Flatten() in front"),
    "complex": ({"X": X.to(torch.complex128)}, "X is complex (torch.complex128)", "real"),
    "complex dataset": ({"X": TensorDataset(X.to(torch.complex128), Y), "y": None}, "complex", "real"),
    "sparse": ({"X": X.to_sparse()}, "X is sparse", "to_dense()"),
    "strings": ({"X": [["a", "b"]] * 40}, "X is not an array of numbers"),
    "a string": ({"X": "a" * 40}, "X[0] is not an array of numbers"),
    "None": ({"X": None}, "X is not an array of numbers"),
    "ragged": ({"X": RAGGED}, "X is not an array of numbers"),
    "ragged dataset": ({"X": Samples(RAGGED, Y), "y": None}, "shape (2,)", "shape (1,)"),
    **{f"sweeps={v!r}": ({"sweeps": v}, f"sweeps={v!r} {COUNT}") for v in (0, -1, 1.5, True, "3", None)},
    **{f"batch_size={v!r}": ({"batch_size": v}, f"batch_size={v!r} {COUNT}") for v in (0, -1, 2.0, False, "3")},
    "batch_size=41": ({"batch_size": 41}, "batch_size=41 is larger than the data (40 samples)", "at most 40, or None"),
    **{f"refresh_every={v!r}": ({"refresh_every": v}, f"refresh_every={v!r} {COUNT}") for v in (0, 0.5, None)},
    **{f"time_limit={v!r}": ({"time_limit": v}, f"time_limit={v!r} {POSITIVE}") for v in (0, -1.0, math.nan, "5")},
    **{f"tolerance={v!r}": ({"tolerance": v}, f"tolerance={v!r} must be") for v in (-1e-3, math.nan, "5")},
    **{f"seed={v!r}": ({"seed": v}, f"seed={v!r} must be") for v in (0.5, "a", None, True, -1, 2**70)},
    "unknown method": ({"method": "newton"}, "method='newton' is unknown", "'paper'", "lysep.Paper()"),
    "no method": ({"method": 3}, "method=3 is neither a name nor an object with a sweep method"),
    "a class": ({"method": lysep.Paper}, "method=", "Paper()"),
    "callbacks is one": ({"callbacks": print}, "callbacks"),
    "no callback": ({"callbacks": [print, 3]}, "callbacks", "3"),
    "validation is X": ({"validation": X}, "validation must be a pair (X, y), but is a Tensor"),
    "validation is a triple": ({"validation": (X, Y, Y)}, "validation must be a pair (X, y)"),
    "validation of other shape": ({"validation": (torch.rand(5, 3), Y[:5])}, "validation: ", "(3,)", "(2,)"),
    "validation with NaN": ({"validation": (holding(math.nan), Y)}, "validation: X holds nan", "sample 7"),
    "validation label": ({"validation": (X, labels(2))}, "validation: y holds label 2"),
    "validation without labels": ({"validation": (X, None)}, "validation: y is missing"),
}


@pytest.mark.parametrize(("passed", "words"), [(row[0], row[1:]) for row in BAD.values()], ids=BAD)
def test_bad_input_is_named_before_anything_happens(passed, words):
    arguments = {"model": network(), "X": X, "y": Y, "sweeps": 2} | passed
    before = values(arguments["model"])
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        lysep.fit(**arguments)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert same(values(arguments["model"]), before)


def test_all_features_that_are_not_finite_are_counted():
    many = torch.zeros(70_000, 2)
    many[[5, 69_999]] = math.nan
    with pytest.raises(ValueError, match=r"sample 5, and 4 such values in all"):
        lysep.fit(network(), many, torch.arange(70_000) % 2)
