"""`lysep bench` (studies/bench): the clock, the choice of settings, what runs say, tables and pictures."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lysep.problems import circle, fnn
from lysep.studies.bench import starts, training, tuning
from lysep.studies.bench.conduct import Comparison, Runner, compare
from lysep.studies.bench.problems import FRACTIONS, LADDER, Problem, dense
from lysep.studies.bench.summary import accuracies, accuracy_at, lowest, seconds_to, spread
from lysep.studies.bench.training import COLUMNS, Candidate, Recorder, Stopwatch, Task, train
from lysep.studies.bench.tuning import Family, ranked, tuned
from lysep.studies.runs import Outcome, Run, Store
from lysep.text import duration
from small import plain_scores


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def small_circle(seed):
    return circle(seed, train=60, test=30)


def small_network(seed, start):
    return dense(3, 4, 2, 2, seed, start)


SMALL = Problem("small", "small (3,4)", (3, 4), small_circle, small_network, budget=1.0, target=1e-2, seeds=2)
ADAM = Candidate("adam", "pytorch", 0.01)


def run_of(curve, *, seed=0, budget=6.0, status="ok", ended="out of time", **named):
    """A run from (seconds, training cross-entropy, test accuracy)."""
    history = [(seconds, step, loss, 0.5, loss, accuracy) for step, (seconds, loss, accuracy) in enumerate(curve)]
    specification = {"problem": "made", "network": [3, 4], "seed": seed, "budget": budget, **named}
    machine = {"cpu": "made up", "cores": 1, "threads": 1, "python": "3", "torch": "2", "lysep": "0", "load": 0.5}
    return Run(specification, machine, COLUMNS, history, Outcome(status, ended, len(curve), budget))


# -- clock and recorder ------------------------------------------------------------------------------------------------


def test_the_stopwatch_stands_still_while_it_is_paused():
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 2.0
    with watch.paused() as seconds:
        assert seconds == 2.0
        clock.now += 50.0
    clock.now += 1.0
    assert watch.seconds == 3.0
    watch.start()
    assert watch.seconds == 0.0


def recorder_of(clock, budget=1.0, until=None, spacing=1.5):
    task = Task(replace(SMALL, spacing=spacing), ADAM, 0, budget, until)
    return Recorder(task, small_circle(0), Stopwatch(clock))


def test_a_model_is_scored_again_only_when_the_clock_has_advanced_by_the_spacing(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(training, "score", lambda model, X, y: setattr(clock, "now", clock.now + 7.0) or (0.5, 0.5))
    recorder = recorder_of(clock, budget=4.0)
    steps, model = 0, small_network(0, "pytorch")
    for steps in itertools.count(1):
        clock.now += 0.5
        if recorder(steps, lambda: model):
            break
    times = [row[0] for row in recorder.rows]
    assert times == [0.5, 1.0, 1.5, 2.5, 4.0]  # scoring took 14 seconds each time, off the clock
    assert (steps, recorder.ended) == (8, "out of time")


@pytest.mark.parametrize(("loss", "ended"), [(0.001, "reached the goal"), (math.nan, "diverged")])
def test_a_run_ends_at_its_goal_and_when_it_diverges(monkeypatch, loss, ended):
    clock, losses = Clock(), iter([0.5, 0.5, loss, 0.5])
    monkeypatch.setattr(training, "score", lambda model, X, y: (next(losses), 0.5))
    recorder, model = recorder_of(clock, until=0.01), small_network(0, "pytorch")
    clock.now += 0.1
    assert not recorder(1, lambda: model)
    clock.now += 0.1
    assert recorder(2, lambda: model)
    assert recorder.ended == ended


@pytest.mark.parametrize("method", ["adam", "lbfgs-single", "muon", "paper", "fast"])
def test_a_run_records_the_scores_of_the_model_as_it_was(method):
    candidate = Candidate(method, "xavier", None if method in ("paper", "fast") else 0.05)
    run = train(Task(replace(SMALL, spacing=1.0), candidate, 3, 0.15))
    model = small_network(3, "xavier")
    data = small_circle(3)
    expected = (*plain_scores(model, data.X_train, data.y_train), *plain_scores(model, data.X_test, data.y_test))
    assert run.ok
    assert run.history[0] == (0.0, 0, *map(pytest.approx, expected))
    assert run.column("step") == list(range(len(run.history)))
    assert lowest(run) < expected[0]
    assert run.history[-1][0] >= 0.15 or run.outcome.ended == "finished by itself"


def test_the_curve_of_adam_is_that_of_a_plain_loop():
    run = train(Task(replace(SMALL, spacing=1.0), ADAM, 5, 0.1))
    data, model = small_circle(5), small_network(5, "pytorch")
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for recorded in run.history[1:6]:
        adam.zero_grad()
        F.cross_entropy(model(data.X_train), data.y_train).backward()
        adam.step()
        assert recorded[2:4] == pytest.approx(plain_scores(model, data.X_train, data.y_train), rel=1e-9)


def test_the_measured_start_gives_every_hidden_unit_the_same_spread():
    model, data = fnn(12, 6, start="pytorch"), circle(train=500)
    starts.measured(model, data.X_train, data.y_train)
    z, spreads = data.X_train, []
    for module in list(model)[:-1]:
        z = module(z)
        if isinstance(module, nn.Linear):
            spreads.append(z.std(0, correction=0))
            assert bool((z.mean(0).abs() <= 0.3 + 1e-9).all())
    assert 0.2 < float(spreads[0][0].detach()) < 1.0
    assert torch.allclose(torch.stack(spreads), spreads[0][0])


def test_settings_are_not_chosen_by_test_samples():
    run = train(Task(SMALL, ADAM, 0, 0.01, tuning=True))
    data, model = small_circle(0), small_network(0, "pytorch")
    assert run.history[0][2:4] == pytest.approx(plain_scores(model, data.X_train[:45], data.y_train[:45]))
    assert run.history[0][4:6] == pytest.approx(plain_scores(model, data.X_train[45:], data.y_train[45:]))


def test_a_run_that_ends_by_itself_is_scored_where_it_ended():
    clock = Clock()
    recorder, model = recorder_of(clock, spacing=1e9), small_network(0, "pytorch")
    for step in (1, 2, 3):
        clock.now += 0.125
        assert not recorder(step, lambda: model)
    recorder.finish(model)
    recorder.finish(model)
    assert [row[:2] for row in recorder.rows] == [(0.125, 1), (0.375, 3)]
    assert recorder.ended == "finished by itself"


def test_of_many_training_samples_the_first_are_scored():
    def many(seed):
        return circle(seed, train=5003, test=30)

    run = train(Task(replace(SMALL, load=many), ADAM, 0, 0.01))
    data, model = many(0), small_network(0, "pytorch")
    assert run.history[0][2:4] == pytest.approx(plain_scores(model, data.X_train[:5000], data.y_train[:5000]))
    assert run.history[0][2] != pytest.approx(plain_scores(model, data.X_train, data.y_train)[0], rel=1e-9)


def test_what_goes_wrong_in_training_is_a_failed_run():
    def broken(seed, start):
        return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()

    run = train(Task(replace(SMALL, network=broken), Candidate("paper", "pytorch"), 0, 0.1))
    assert not run.ok
    assert "BatchNorm1d" in run.outcome.ended
    assert seconds_to(run, 1e9) == math.inf


# -- what is read from runs --------------------------------------------------------------------------------------------


def test_seconds_to_a_threshold():
    run = run_of([(0.0, 0.7, 0), (1.0, 0.01, 0), (2.0, 0.02, 0), (3.0, 0.001, 0)])
    assert [seconds_to(run, t) for t in (0.7, 0.01, 0.005, 1e-4)] == [0.0, 1.0, 3.0, math.inf]
    assert lowest(run) == 0.001
    assert seconds_to(run_of([(0.0, 0.1, 0)], status="failed"), 1.0) == math.inf


def test_accuracy_is_that_of_the_last_score_before():
    run = run_of([(0.0, 1, 0.1), (1.0, 1, 0.5), (2.9, 1, 0.8), (3.1, 1, 0.7), (6.2, 1, 0.99)])
    assert [accuracy_at(run, t) for t in (0.0, 0.9, 1.0, 3.0, 100.0)] == [0.1, 0.1, 0.5, 0.8, 0.99]
    assert accuracies(run) == [0.5, 0.8, 0.7]
    assert FRACTIONS == (1 / 6, 1 / 2, 1.0)


def test_quartiles_are_numpys_and_failures_are_infinite():
    values = [3.0, 1.0, 2.0, 10.0, 7.0, 4.0]
    assert spread(values)[:3] == pytest.approx(np.percentile(values, [25, 50, 75]))
    assert spread([1.0, math.inf, 2.0]) == (1.5, 2.0, math.inf, 2, 3)
    assert spread([math.inf, 1.0, math.inf, 2.0]) == (1.75, math.inf, math.inf, 2, 4)
    assert spread([math.inf] * 3) == (math.inf, math.inf, math.inf, 0, 3)


# -- the choice of settings --------------------------------------------------------------------------------------------


def test_more_successes_beat_a_better_median_and_nearness_decides_among_failures():
    reliable, fast_but_rare, near, far = (Candidate("adam", "pytorch", rate) for rate in (1.0, 2.0, 3.0, 4.0))
    tried = {
        far: [run_of([(1.0, 0.6, 0)])] * 3,
        fast_but_rare: [run_of([(0.1, 1e-3, 0)]), run_of([(0.1, 1e-3, 0)]), run_of([(1.0, 0.5, 0)])],
        near: [run_of([(1.0, 0.02, 0)])] * 3,
        reliable: [run_of([(5.0, 1e-3, 0)])] * 3,
    }
    assert ranked(tried, 1e-2) == [reliable, fast_but_rare, near, far]


def test_without_a_target_held_out_accuracy_decides():
    low, high = Candidate("adam", "pytorch", 1.0), Candidate("adam", "pytorch", 2.0)
    tried = {low: [run_of([(0.0, 1e-9, 0.4)])], high: [run_of([(0.0, 1.0, 0.6)])]}
    assert ranked(tried, None) == [high, low]


def seconds_by_rate(task):
    """A made run that needs as many seconds as its learning rate, and never gets there above two."""
    rate = task.candidate.lr
    return run_of([(0.0, 0.7, 0), (rate, 1e-3 if rate <= 2.0 else 0.5, 0)], seed=task.seed, budget=task.budget)


def test_all_candidates_are_screened_and_the_best_run_again_on_seeds_that_are_not_reported():
    candidates = [Candidate("adam", "pytorch", rate) for rate in (3.0, 2.0, 0.5, 1.0, 9.0)]
    alone = Candidate("paper", "pytorch")
    families = [Family("A", False, lambda p: candidates), Family("B", True, lambda p: [alone])]
    asked = []

    def run_all(tasks):
        asked.extend(tasks)
        return list(map(seconds_by_rate, tasks))

    assert tuned(families, SMALL, run_all) == {"A": candidates[2], "B": alone}
    assert [task.candidate.lr for task in asked] == [3.0, 2.0, 0.5, 1.0, 9.0, 0.5, 0.5, 1.0, 1.0]
    assert all(task.tuning and task.seed >= 100 for task in asked)
    assert {task.budget for task in asked[:5]} == {0.25}
    assert {task.budget for task in asked[5:]} == {1.0}
    assert tuning.most_runs(families, SMALL) == (9, 5 * 0.25 + 4 * 1.0)


def test_every_optimizer_has_the_same_starts_to_choose_from():
    for family in (tuning.SGD, tuning.ADAM, tuning.LBFGS, tuning.MUON):
        candidates = family.candidates(LADDER[0])
        grid = {(c.method, c.lr, c.start) for c in candidates}
        methods = {c.method for c in candidates}
        assert grid == {(m, r, s) for m in methods for r in tuning.RATES[m] for s in ("pytorch", "xavier", "measured")}


@pytest.mark.parametrize(
    ("rates", "chosen", "at_an_edge"),
    [
        ((0.1, 0.2, 0.3), 0.1, True),
        ((0.1, 0.2, 0.3), 0.2, False),
        ((0.1, 0.2, 0.3), 0.3, True),
        ((0.3, 1.0), 1.0, False),  # too few to have edges
        ((None,), None, False),
    ],
)
def test_a_rate_at_the_edge_of_what_its_method_may_choose_is_known(rates, chosen, at_an_edge):
    others = [Candidate("gd", "xavier", rate) for rate in (1e-9, 1e9)]  # of another method: nobody's edges
    family = Family("F", False, lambda p: [*others, *(Candidate("momentum", "pytorch", rate) for rate in rates)])
    assert tuning.at_an_edge(family, SMALL, Candidate("momentum", "pytorch", chosen)) is at_an_edge


# -- carrying out ------------------------------------------------------------------------------------------------------


def test_a_run_that_is_there_is_not_made_again_and_one_that_was_killed_leaves_nothing(tmp_path, monkeypatch):
    store, made = Store(tmp_path), []
    tasks = [Task(SMALL, ADAM, seed, 1.0) for seed in range(3)]

    def made_run(task):
        if task.seed == 2 and len(made) < 3:
            made.append("killed")
            raise KeyboardInterrupt
        made.append(task.seed)
        return replace(run_of([(0.0, 0.7, 0)]), specification=task.specification)

    monkeypatch.setattr("lysep.studies.bench.conduct.train", made_run)
    with pytest.raises(KeyboardInterrupt), Runner(store, 1, (3, 3.0), lambda line: None) as runner:
        runner(tasks)
    said = []
    with Runner(store, 1, (3, 3.0), said.append) as runner:
        runs = runner(tasks)
    assert made == [0, 1, "killed", 2]
    assert [run.specification["seed"] for run in runs] == [0, 1, 2]
    assert len(said) == 1
    assert said[0].startswith("[3/3] small (3,4), adam 0.01, pytorch start, seed 2")
    assert "at most 0 s of training left" in said[0]


def test_several_jobs_make_the_same_runs(tmp_path):
    tasks = [Task(LADDER[0], Candidate("adam", "pytorch", 0.01), seed, 0.02) for seed in range(2)]
    with Runner(Store(tmp_path), 2, (2, 0.04), lambda line: None) as runner:
        runs = runner(tasks)
    assert [run.specification["seed"] for run in runs] == [0, 1]
    data, model = circle(1), fnn(3, 10, start="pytorch", seed=1)
    assert runs[1].history[0][2] == pytest.approx(plain_scores(model, data.X_train, data.y_train)[0], rel=1e-5)


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (120.0, "2 min"), (9000.0, "2.5 h")])
def test_how_long_something_takes_is_said_in_a_fitting_unit(seconds, text):
    assert duration(seconds) == text


def test_families_that_choose_the_same_share_their_runs():
    families = [Family(name, True, lambda p: [ADAM]) for name in "AB"]
    asked = []

    def run_all(tasks):
        asked.extend(tasks)
        return list(map(seconds_by_rate, tasks))

    entries = compare(Comparison([SMALL], families), run_all)
    assert [task.seed for task in asked] == [0, 1]
    assert entries[0].runs == entries[1].runs
    assert Comparison([SMALL], families).cost() == (4, 4.0)


def test_families_take_turns_seed_by_seed():
    slow, quick = Candidate("adam", "pytorch", 2.0), Candidate("adam", "pytorch", 1.0)
    families = [Family("A", True, lambda p: [slow]), Family("B", True, lambda p: [quick])]
    asked = []
    compare(Comparison([SMALL], families), lambda tasks: asked.extend(tasks) or list(map(seconds_by_rate, tasks)))
    assert [(task.seed, task.candidate) for task in asked] == [(0, slow), (0, quick), (1, slow), (1, quick)]
