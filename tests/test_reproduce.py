"""From a command to runs (studies/execute.py, workers.py, reproduce.py, cli/reproduce.py)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import lysep
from lysep.cli import main
from lysep.problems import circle, digits, fnn
from lysep.studies import execute as execution
from lysep.studies.execute import RunInterruptedError, execute
from lysep.studies.paper import Cell
from lysep.studies.reproduce import reproduce
from lysep.studies.runs import Store
from lysep.studies.tuning import Effort
from small import plain_scores

CELLS = {
    "circle": Cell("circle", (3, 4), "paper"),
    "interface": Cell("interface", (3, 4), "paper", time=0.001),
    "digits": Cell("digits", (2, 1), "paper", batch_size=100),
}
TINY = Effort(sweeps=2, seeds=2, tuning_sweeps=1, tuning_seeds=(100,))


def nothing(sweeps):
    pass


def specification(problem="circle", method="paper", sweeps=3, **changes):
    cell = CELLS[problem]
    cell = Cell(cell.problem, cell.network, method, cell.time, cell.batch_size)
    options = {} if method == "paper" else {"learning_rate": 0.1}
    return cell.specification(1, sweeps, 0, "xavier", **options) | changes


# One run.


@pytest.mark.parametrize("problem", CELLS)
@pytest.mark.parametrize("method", ["paper", "gd", "adam", "lbfgs"])
def test_every_method_runs_on_every_problem_and_keeps_what_tables_and_figures_need(problem, method):
    seen = []
    run = execute(specification(problem, method, sweeps=40 if method == "lbfgs" else 2), seen.append)
    assert run.ok, run.outcome.ended
    assert run.column("sweep") == seen == ([20, 40] if method == "lbfgs" else [1, 2])
    assert run.outcome.sweeps == seen[-1]
    assert len(run.outcome.predictions) == (449 if problem == "digits" else 1000)
    assert set(run.outcome.scores) == {"train", "test"} | ({"last_batch"} if problem == "digits" else set())
    assert run.machine["device"] == "cpu"


def test_a_run_is_a_fit_and_its_scores_are_those_of_the_trained_network():
    run, data, model = execute(specification(), nothing), circle(0), fnn(3, 4, start="xavier", seed=1)
    history = lysep.fit(model, data.X_train, data.y_train, method="paper", sweeps=3).history
    assert run.column("objective") == history["objective"]
    for name, X, y in (("train", data.X_train, data.y_train), ("test", data.X_test, data.y_test)):
        scores = run.outcome.scores[name]
        assert (scores["cross_entropy"], scores["accuracy"]) == pytest.approx(plain_scores(model, X, y), rel=1e-12)
    assert run.outcome.predictions == "".join(str(int(c)) for c in model(data.X_test).argmax(1))


def test_the_last_batch_is_the_one_trained_on_last():
    """With a refresh every two of five sweeps it is the third that is drawn."""
    data, generator = digits(0), torch.Generator().manual_seed(1)
    for _ in range(3):
        chosen = torch.randperm(len(data.X_train), generator=generator)[:100]
    given = specification("digits", sweeps=5, refresh_every=2)
    model = execution.network(given)
    lysep.fit(model, data.X_train, data.y_train, method="paper", sweeps=5, batch_size=100, refresh_every=2, seed=1)
    expected = plain_scores(model, data.X_train[chosen], data.y_train[chosen])
    scores = execute(given, nothing).outcome.scores
    assert tuple(scores["last_batch"].values()) == pytest.approx(expected, rel=1e-12)
    assert scores["last_batch"] != scores["train"]
    # A baseline's last row was scored before a step that, here, changes next to nothing.
    run = execute(specification("digits", "gd", sweeps=5, refresh_every=2, learning_rate=1e-9), nothing)
    last_row = run.column("cross_entropy")[-1], run.column("accuracy")[-1]
    assert tuple(run.outcome.scores["last_batch"].values()) == pytest.approx(last_row, rel=1e-6)


def test_the_same_specification_is_the_same_run():
    first, second = (execute(specification("digits", "adam"), nothing) for _ in range(2))
    assert first.outcome.scores == second.outcome.scores
    assert first.column("cross_entropy") == second.column("cross_entropy")


def test_a_run_that_diverges_is_recorded_as_failed_with_its_history():
    run = execute(specification(method="gd", sweeps=50, learning_rate=1e308), nothing)
    assert not run.ok
    assert "not finite" in run.outcome.ended
    assert run.outcome.scores == {}
    assert 1 <= run.outcome.sweeps < 50
    assert len(run.history) == run.outcome.sweeps


def test_a_run_that_breaks_is_recorded_as_failed_with_its_error(monkeypatch):
    def broken(*args, callbacks, **options):
        raise torch.linalg.LinAlgError("the matrix\nis singular")

    monkeypatch.setattr(lysep, "fit", broken)
    run = execute(specification(), nothing)
    assert (run.outcome.status, run.outcome.sweeps) == ("failed", 0)
    assert run.outcome.ended.endswith("LinAlgError: the matrix is singular")


def test_a_line_search_that_stands_still_ends_a_run_that_is_none_the_worse():
    cell = Cell("circle", (3, 4), "lbfgs")
    run = execute(cell.specification(0, 4000, 0, "xavier", learning_rate=1e-300), nothing)
    assert run.ok
    assert run.outcome.sweeps == 40
    assert run.outcome.ended == lysep.Status.STALLED.message


def test_who_watches_a_run_may_end_it():
    def stop(sweeps):
        if sweeps == 2:
            raise RunInterruptedError

    for method in ("paper", "adam"):
        with pytest.raises(RunInterruptedError):
            execute(specification(method=method), stop)


# Many.


def made(folder):
    return {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()}


def test_what_is_missing_is_run_and_only_that(tmp_path):
    store, said = Store(tmp_path / "runs"), []
    options = {"only": ["3,10", "paper", "lbfgs"], "jobs": 1, "say": said.append}
    reproduce("table1", store, TINY, **options)
    first = made(store.folder)
    assert len(first) == 6 + 2 + 2  # tuning of L-BFGS, and two seeds of each
    assert said[0] == "table1: 4 runs, 0 of them done; 6 runs to tune by"
    assert any("10 runs to do: about" in line for line in said)
    removed = next(path for path in store.folder.iterdir() if "-paper-1-" in path.name)
    removed.unlink()
    reproduce("table1", store, TINY, **options)
    second = made(store.folder)
    assert second.keys() == first.keys()
    assert {name for name in first if first[name] != second[name]} == {removed.name}
    said.clear()
    reproduce("figure2", store, TINY, **options)  # made of the same runs
    assert said == ["figure2: 4 runs, 4 of them done; 0 runs to tune by"]


def command(folder, *options):
    """Runs of some tenths of a second."""
    words = ["reproduce", "table1", "--only", "3,10", "--only", "paper", "--jobs", "1", "--seeds", "3", *options]
    return [sys.executable, "-m", "lysep", *words, "--runs", str(folder)]


def begun(folder, *options):
    """A command in the background, when its first run is done."""
    environment = os.environ | {"PYTHONPATH": str(Path(lysep.__file__).parents[1])}
    process = subprocess.Popen(
        command(folder, "--sweeps", "150", *options), stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    deadline = time.monotonic() + 60.0
    while not list(folder.glob("*.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_it_loses_the_run_in_hand_and_nothing_else(tmp_path, how):
    process = begun(tmp_path)
    children = _children(process.pid)
    assert children
    process.send_signal(how)
    _, errors = process.communicate(timeout=30)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert b"Traceback" not in errors
    deadline = time.monotonic() + 20.0
    while any(_alive(child) for child in children):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
    before = made(tmp_path)
    assert 1 <= len(before) < 3
    assert all(run.ok for run in Store(tmp_path))  # no file is half a run
    assert main([*command(tmp_path, "--sweeps", "150")[3:]]) == 0
    after = made(tmp_path)
    assert len(after) == 3
    assert all(after[name] == before[name] for name in before)


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid):
    """Running, and not merely waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_is_begun_that_would_not_end_in_time(tmp_path, capsys):
    words = ["reproduce", "table1", "--only", "3,10", "--only", "paper", "--jobs", "1", "--minutes", "0.0001"]
    assert main([*words, "--runs", str(tmp_path / "runs")]) == 0
    assert "10 runs were not begun" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_bad_arguments_are_refused_before_anything_is_run(tmp_path, capsys):
    for words, hint in (
        (["--only", "3,99"], "leaves nothing"),
        (["--jobs", "0"], "jobs=0"),
        (["--seeds", "0"], "seeds=0"),
        (["--seeds", "101"], "seeds=101"),
        (["--sweeps", "-5"], "sweeps=-5"),
        (["--device", "abacus"], "device='abacus'"),
    ):
        assert main(["reproduce", "table1", *words, "--runs", str(tmp_path / "runs")]) == 1
        error = capsys.readouterr().err
        assert hint in error
        assert "defect" not in error
    assert not (tmp_path / "runs").exists()


def test_a_figure_without_runs_needs_none(tmp_path, capsys):
    assert main(["reproduce", "figure1", "--runs", str(tmp_path / "runs")]) == 0
    assert "figure1: 0 runs" in capsys.readouterr().out
