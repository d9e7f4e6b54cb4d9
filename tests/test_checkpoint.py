"""A run that was interrupted, however it was, ends as one that was not (checkpoint.py)."""

import copy
import importlib.util
import math
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import lysep
from architectures import problems
from lysep import CheckpointError, Status, atomic
from lysep.checkpoint import FILE
from small import Method, Recorder, Samples, X, Y, by_the_paper, disk, network, outcome, same, values

# Forking is what makes a hundred killed runs affordable; one thread computes, and the children end without cleaning up.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


kill_resume = script("kill_resume")


class Crash(BaseException):
    """What nothing catches: the run is gone, as a process that is killed; only the checkpoint stays."""


def at(sweep, exception):
    def callback(progress):
        if progress.sweep == sweep:
            raise exception

    return callback


def crash(directory, make, sweep, **options):
    """Run until a sweep and be gone; a checkpoint has been written after every one before."""
    callbacks = [*options.pop("callbacks", []), at(sweep, Crash())]
    with pytest.raises(Crash):
        lysep.fit(*make(), **options, callbacks=callbacks, checkpoint=directory, checkpoint_every=0.0)


# -- as if it had never been interrupted -------------------------------------------------------------------------------


@given(problems(), st.data())
@settings(max_examples=60)
def test_any_network_goes_on_bit_for_bit(tmp_path_factory, problem, data):
    """Dense and convolutional, every activation, layout and dtype; interrupted twice, wherever."""
    directory = tmp_path_factory.mktemp("run")
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
    some = {"batch_size": 3, "refresh_every": data.draw(st.integers(1, 3))}
    weights = {"sample_weight": 0.5 + torch.arange(len(problem.y)) % 2}
    options = {"method": data.draw(st.sampled_from(["paper", "fast"]))}
    options |= data.draw(st.sampled_from([{}, some, weights, some | weights]))

    def make():
        return copy.deepcopy(problem.model).to(dtype), problem.X.to(dtype), problem.y

    expected = lysep.fit(*make(), sweeps=8, **options)
    for sweep in sorted(data.draw(st.lists(st.integers(1, len(expected.history)), max_size=2, unique=True))):
        crash(directory, make, sweep, sweeps=8, **options)
    assert outcome(lysep.fit(*make(), sweeps=8, checkpoint=directory, **options)) == outcome(expected)


CASES = {case.name: case for case in kill_resume.cases(samples=150)}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_goes_on_bit_for_bit_from_every_sweep(tmp_path, name):
    case = CASES[name]
    callbacks = case.callbacks

    def run(directory, *more, **options):
        chosen = [*callbacks(directory), *more]
        return lysep.fit(case.model(), *case.data, sweeps=12, callbacks=chosen, **case.options, **options)

    expected = outcome(run(tmp_path / "whole"))
    for sweep in range(1, 13):
        with pytest.raises(Crash):
            run(tmp_path, at(sweep, Crash()), checkpoint=tmp_path / "run", checkpoint_every=0.0)
    assert outcome(run(tmp_path, checkpoint=tmp_path / "run")) == expected
    if (tmp_path / "log.csv").exists():
        logs = [(d / "log.csv").read_text().splitlines() for d in (tmp_path, tmp_path / "whole")]
        clock = logs[0][0].split(",").index("seconds")
        first, second = ([line.split(",")[:clock] + line.split(",")[clock + 1 :] for line in log] for log in logs)
        assert first == second


def test_a_dataset_that_loads_its_samples_goes_on_too(tmp_path):
    def make():
        return network(), Samples(X, Y)

    options = {"sweeps": 9, "batch_size": 10, "refresh_every": 2}
    expected = outcome(lysep.fit(*make(), **options))
    crash(tmp_path, make, 6, **options)
    model, samples = make()
    assert outcome(lysep.fit(model, samples, **options, checkpoint=tmp_path)) == expected
    assert len(samples.loaded) < 10 + 3 * 10 + 20  # what tells it from others, the batch of sweep 5 and two new ones


def test_early_stopping_stops_where_it_would_have_stopped(tmp_path):
    held_out = disk(17)
    held_out[1][torch.randperm(17, generator=torch.Generator().manual_seed(2))[:6]] ^= 1  # best in sweep 5

    def make():
        return network(), X, Y

    def options():
        stopping = lysep.EarlyStopping(patience=6)
        return {"method": "paper", "sweeps": 500, "validation": held_out, "callbacks": [stopping]}

    expected = lysep.fit(*make(), **options())
    assert expected.status is Status.STOPPED
    assert expected.kept_sweep < len(expected.history)
    for sweep in (3, 7, 10):  # before the best sweep and after it
        crash(tmp_path, make, sweep, **options())
    assert outcome(lysep.fit(*make(), **options(), checkpoint=tmp_path)) == outcome(expected)
    again = lysep.fit(*make(), **options(), checkpoint=tmp_path)
    assert outcome(again) == outcome(expected)


def test_early_stopping_does_not_go_on_with_another_column(tmp_path):
    lysep.fit(network(), X, Y, sweeps=3, callbacks=[lysep.EarlyStopping(monitor="bound")], checkpoint=tmp_path)
    other, model = lysep.EarlyStopping(monitor="accuracy"), network()
    with pytest.raises(ValueError, match="monitor='accuracy', but the run that is continued has watched 'bound'"):
        lysep.fit(model, X, Y, sweeps=9, callbacks=[other], checkpoint=tmp_path)
    assert same(values(model), values(network()))


class Ticking:
    """A callback of somebody else's, with a state of every kind there is, that is changed in place."""

    def __init__(self):
        self.state = {"count": 0, "sum": torch.zeros(2), "seen": [], "none": None, "odd": [math.nan, -math.inf, 1e-320]}

    def __call__(self, progress):
        self.state["count"] += 1
        self.state["sum"] += progress.row["objective"]
        self.state["seen"].append(progress.sweep)

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_callbacks_see_every_sweep_once_even_if_one_is_interrupted(tmp_path):
    """In sweep 4, after the first callback was called and before the second."""
    first, second = Ticking(), Ticking()
    lysep.fit(network(), X, Y, sweeps=9, callbacks=[first, at(4, KeyboardInterrupt()), second], checkpoint=tmp_path)
    again = [Ticking(), Ticking()]
    lysep.fit(network(), X, Y, sweeps=9, callbacks=again, checkpoint=tmp_path)
    whole = Ticking()
    lysep.fit(network(), X, Y, sweeps=9, callbacks=[whole])
    for ticking in again:
        assert ticking.state["seen"] == list(range(1, 10))
        assert ticking.state["count"] == 9
        assert torch.equal(ticking.state["sum"], whole.state["sum"])
        assert str(ticking.state["odd"]) == "[nan, -inf, 1e-320]"
        assert ticking.state["none"] is None


# -- how a run may end, and go on --------------------------------------------------------------------------------------


def test_a_finished_run_returns_at_once_with_the_same_result(tmp_path):
    first = lysep.fit(network(), X, Y, sweeps=7, checkpoint=tmp_path)
    written = (tmp_path / FILE).stat().st_mtime_ns
    seen, model = Recorder(), network(seed=5)  # whatever the model is: the checkpoint says what it becomes
    second = lysep.fit(model, X, Y, sweeps=7, callbacks=[seen], checkpoint=tmp_path)
    assert seen.seen == []
    assert outcome(second) == outcome(first)
    assert second.history["seconds"] == first.history["seconds"]
    assert (tmp_path / FILE).stat().st_mtime_ns == written


def test_more_sweeps_go_on_and_fewer_are_refused(tmp_path):
    lysep.fit(network(), X, Y, sweeps=4, checkpoint=tmp_path)
    longer = lysep.fit(network(), X, Y, sweeps=9, checkpoint=tmp_path)
    assert outcome(longer) == outcome(lysep.fit(network(), X, Y, sweeps=9))
    assert sorted(longer.history["seconds"]) == longer.history["seconds"]
    model = network()
    with pytest.raises(ValueError, match=r"sweeps=5, but the checkpoint has run 9 already\. Ask for at least as many"):
        lysep.fit(model, X, Y, sweeps=5, checkpoint=tmp_path)
    assert same(values(model), values(network()))


def test_a_time_limit_is_one_of_a_call_and_the_next_call_goes_on(tmp_path):
    def slow(progress):
        time.sleep(0.02)

    statuses = []
    for _ in range(20):
        result = lysep.fit(network(), X, Y, sweeps=12, time_limit=0.1, callbacks=[slow], checkpoint=tmp_path)
        statuses.append(result.status)
        if result.status is Status.COMPLETED:
            break
    assert statuses[0] is Status.TIME_LIMIT
    assert statuses[-1] is Status.COMPLETED
    assert outcome(result) == outcome(lysep.fit(network(), X, Y, sweeps=12))
    assert result.history["seconds"][-1] >= (12 - len(statuses)) * 0.02  # those of all calls together


def test_a_run_that_was_interrupted_from_the_keyboard_goes_on(tmp_path):
    stopped = lysep.fit(network(), X, Y, sweeps=9, callbacks=[at(4, KeyboardInterrupt())], checkpoint=tmp_path)
    assert stopped.status is Status.INTERRUPTED
    assert len(stopped.history) == 4
    result = lysep.fit(network(), X, Y, sweeps=9, checkpoint=tmp_path)
    assert outcome(result) == outcome(lysep.fit(network(), X, Y, sweeps=9))


def test_a_run_that_ended_by_itself_ends_again(tmp_path):
    idle = Method(lambda it, call: by_the_paper(it, call) if call < 3 else it)
    ends = {
        Status.TOLERANCE: {"method": "paper", "tolerance": 0.02, "sweeps": 2000},
        Status.STOPPED: {"callbacks": [lambda progress: progress.sweep == 3]},
        Status.STALLED: {"method": idle},
    }
    for status, options in ends.items():
        first = lysep.fit(network(), X, Y, **options, checkpoint=tmp_path / status.name)
        assert first.status is status
        assert outcome(lysep.fit(network(), X, Y, **options, checkpoint=tmp_path / status.name)) == outcome(first)
    assert len(idle.iterates) == 3
    longer = {"method": "paper", "tolerance": 0.0, "sweeps": 300}
    further = lysep.fit(network(), X, Y, **longer, checkpoint=tmp_path / Status.TOLERANCE.name)
    assert outcome(further) == outcome(lysep.fit(network(), X, Y, **longer))


def test_a_later_batch_that_is_not_finite_ends_the_run_every_time(tmp_path):
    broken = X.clone()
    broken[30:] = math.nan

    def make():
        return network(), Samples(broken, Y)

    options = {"sweeps": 20, "batch_size": 3, "refresh_every": 2}
    first = lysep.fit(*make(), **options, seed=2)
    assert first.status is Status.NON_FINITE
    assert len(first.history) == 4
    for _ in range(2):
        assert outcome(lysep.fit(*make(), **options, seed=2, checkpoint=tmp_path)) == outcome(first)


def test_a_second_ctrl_c_does_not_stop_the_last_writing(tmp_path, monkeypatch):
    flush, pressed = atomic._flush, []

    def impatient(path):
        if stopped and len(pressed) < 2:
            pressed.append(path)
            raise KeyboardInterrupt
        flush(path)

    stopped = []

    def stop(progress):
        if progress.sweep == 4:
            stopped.append(True)
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "_flush", impatient)
    result = lysep.fit(network(), X, Y, sweeps=9, callbacks=[stop], checkpoint=tmp_path)
    assert len(pressed) == 2
    assert result.status is Status.INTERRUPTED
    assert os.listdir(tmp_path) == [FILE]
    seen = Recorder()
    lysep.fit(network(), X, Y, sweeps=9, callbacks=[seen], checkpoint=tmp_path)
    assert seen.seen[0].sweep == 4


@pytest.mark.parametrize("place", range(len(CASES)))
def test_kill_9_at_random_moments(place):
    """Two kills each; benchmarks/results/kill_resume.md has forty."""
    found = kill_resume.kill_and_resume(kill_resume.cases(samples=300)[place], sweeps=30, kills=2, seed=place)
    assert found.kills == 2


# -- other runs --------------------------------------------------------------------------------------------------------


def another(**changes):
    given = {"model": network(), "X": X, "y": Y, "sample_weight": torch.ones(40), "batch_size": 20, "refresh_every": 3}
    given |= {"validation": disk(9), "method": lysep.Paper(start=1.5), "seed": 3, "sweeps": 6}
    return given | {"callbacks": [lysep.EarlyStopping(50)]} | changes


OTHER_X = X.clone()
OTHER_X[17, 1] = torch.nextafter(OTHER_X[17, 1], torch.tensor(2.0, dtype=torch.float64))
WIDER = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 2)).double()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": OTHER_X}, r"X was 40 samples of shape \(2,\) \(digest \w+\), but is 40 samples"),
        ({"X": X[:39], "y": Y[:39], "sample_weight": torch.ones(39)}, "X was 40 samples.*but is 39 samples.*; y was"),
        ({"y": Y.flip(0)}, "y was 40 numbers"),
        ({"sample_weight": None}, "sample_weight was 40 numbers.*but is none"),
        ({"model": WIDER}, r"model was Sequential\(.*out_features=6.*but is Sequential\(.*out_features=7"),
        ({"model": network(activation=nn.Sigmoid)}, "model was .*Tanh.*but is .*Sigmoid"),
        ({"model": network(dtype=torch.float32)}, r"dtype was torch\.float64, but is torch\.float32"),
        ({"method": "paper"}, r"method was Paper\(.*start=1\.5.*but is Paper\(.*start=1\.6"),
        ({"seed": 4}, "seed was 3, but is 4"),
        ({"batch_size": 19}, "batch_size was 20, but is 19"),
        ({"batch_size": None}, "batch_size was 20, but is None"),
        ({"refresh_every": 4}, "refresh_every was 3, but is 4"),
        ({"validation": disk(8)}, "validation was 9 samples.*but is 8 samples"),
        ({"validation": None, "callbacks": [lysep.EarlyStopping(monitor="bound")]}, "validation was .*but is None"),
        ({"callbacks": []}, "callbacks was EarlyStopping, but is none"),
    ],
)
def test_another_run_is_refused_and_nothing_is_changed(tmp_path, changes, message):
    lysep.fit(**another(), checkpoint=tmp_path)
    before, model = (tmp_path / FILE).read_bytes(), copy.deepcopy(changes.get("model", network()))
    with pytest.raises(CheckpointError, match=message) as caught:
        lysep.fit(**another(**changes | {"model": model}), checkpoint=tmp_path)
    assert "Pass what it was begun with to continue it, or another directory" in str(caught.value)
    assert same(values(model), values(changes.get("model", network())))
    assert (tmp_path / FILE).read_bytes() == before
    assert os.listdir(tmp_path) == [FILE]


def test_the_same_run_is_the_same_whatever_its_data_come_as(tmp_path):
    lysep.fit(network(), X, Y, sweeps=3, checkpoint=tmp_path)
    lysep.fit(network(), X.numpy(), Y.numpy(), sweeps=3, checkpoint=tmp_path)
    lysep.fit(network(), X.T.contiguous().T, Y.int(), sweeps=3, seed=np.int64(0), checkpoint=tmp_path)


def test_of_a_large_dataset_a_few_samples_are_looked_at(tmp_path):
    many, labels = disk(5000)
    options = {"sweeps": 2, "batch_size": 10, "checkpoint": tmp_path}
    samples = Samples(many, labels)
    lysep.fit(network(), samples, **options)
    assert len(samples.loaded) < 40
    shifted = Samples(many.roll(1, 0), labels.roll(1, 0))
    with pytest.raises(CheckpointError, match="X was 5000 samples"):
        lysep.fit(network(), shifted, **options)


# -- arguments that are refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [-1.0, math.nan, "a", None])
def test_a_time_between_writings_that_is_none_is_refused(every):
    with pytest.raises(ValueError, match=r"checkpoint_every=.* must be a number of seconds"):
        lysep.fit(network(), X, Y, sweeps=2, checkpoint_every=every)


@pytest.mark.parametrize(("state", "message"), [({"a": {1, 2}}, "'a' of .* is a set"), ({1: 2}, "keys that are no")])
def test_a_callback_with_a_state_that_cannot_be_saved_is_refused_at_once(tmp_path, state, message):
    ticking, model = Ticking(), network()
    ticking.state_dict = lambda: state
    with pytest.raises(CheckpointError, match=message):
        lysep.fit(model, X, Y, sweeps=5, callbacks=[ticking], checkpoint=tmp_path)
    assert ticking.state["count"] == 0
    assert same(values(model), values(network()))
