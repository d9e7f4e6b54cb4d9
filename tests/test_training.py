"""The loop over sweeps (training.py)."""

import copy
import math
import random
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn import functional as F

import lysep
from architectures import problems
from lysep import Status
from small import Method, Recorder, Samples, X, Y, by_the_paper, disk, model_of, network, plain_scores, same, values

COLUMNS = [
    *("sweep", "batch", "objective", "separated_loss", "cross_entropy", "accuracy", "bound", "seconds"),
    *("rejected_updates", "line_search_evaluations", "skipped_updates"),
]
VALIDATION = ["validation_cross_entropy", "validation_accuracy"]

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
        model,
        X,
        Y,
        method="paper",
        sweeps=6,
        batch_size=20,
        refresh_every=2,
        validation=held_out,
        callbacks=[seen],
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
    lysep.fit(problem.model, problem.X, problem.y, method="paper", sweeps=4)
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


def test_a_callback_may_do_what_it_likes_with_its_row():
    clear = [lambda progress: progress.row.clear()]
    result = lysep.fit(network(), X, Y, sweeps=12, time_limit=1e9, tolerance=0.0, callbacks=clear)
    check_end(result, Status.COMPLETED, 12)
    assert list(result.history) == COLUMNS


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
    result = lysep.fit(network(), X, Y, method="paper", sweeps=2000, tolerance=0.02)
    S = result.history["objective"]
    assert result.status is Status.TOLERANCE
    assert [S[i - 10] - S[i] < 0.02 * S[i - 10] for i in range(10, len(S))] == [False] * (len(S) - 11) + [True]


def test_the_tolerance_compares_sweeps_of_one_batch_only():
    """Over ten, or over all that a batch has where these are fewer; a new batch is no gain and no loss."""
    options = {"method": "paper", "sweeps": 30, "tolerance": 0.999999, "batch_size": 10}
    check_end(lysep.fit(network(), X, Y, refresh_every=20, **options), Status.TOLERANCE, 11)
    check_end(lysep.fit(network(), X, Y, refresh_every=4, **options), Status.TOLERANCE, 4)
    check_end(lysep.fit(network(), X, Y, refresh_every=4, **options | {"tolerance": 0.0}), Status.COMPLETED, 30)


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
    result = lysep.fit(network(activation=nn.ReLU), X * 1e300, Y, method="paper")
    check_end(result, Status.NON_FINITE, 0)
    assert same(values(result.model), values(network(activation=nn.ReLU)))


@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e300], ids=["NaN", "infinite", "overflows in the model"])
def test_a_later_batch_that_is_not_finite_keeps_the_last_good_state(value):
    samples, seen = Samples(X, Y, poison=(1 + 10, value)), Recorder()
    options = {"method": "paper", "sweeps": 9, "batch_size": 10, "refresh_every": 3, "callbacks": [seen]}
    result = lysep.fit(network(activation=nn.ReLU), samples, **options)
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
