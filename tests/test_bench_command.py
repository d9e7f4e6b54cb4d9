"""`lysep bench` as a command, and on the user's own data (studies/bench/own, cli/bench)."""

import numpy as np
import pytest
import torch

from lysep.cli import main
from lysep.studies.bench import own
from lysep.studies.bench.problems import HELD_OUT, LADDER
from lysep.studies.bench.training import Candidate, Task, train

# -- own data ----------------------------------------------------------------------------------------------------------


def arrays(samples=40, seed=0):
    X = np.random.default_rng(seed).normal(5.0, 3.0, (samples, 3))
    return X, np.where(X[:, 0] > 5.0, "yes", "no")


def saved(tmp_path, **named):
    path = tmp_path / "my.npz"
    np.savez(path, **named)
    return path


def test_own_data_are_scaled_by_what_the_training_samples_are(tmp_path):
    X, y = arrays()
    split = own.own_split(saved(tmp_path, X=X, y=y), seed=1)
    assert (len(split.X_train), len(split.X_test)) == (30, 10)
    assert np.allclose(split.X_train.mean(0), 0.0)
    assert np.allclose(split.X_train.std(0), 1.0)
    back = torch.cat([split.X_train, split.X_test])
    names = torch.cat([split.y_train, split.y_test])
    order = np.argsort(back[:, 1].numpy())
    assert np.array_equal(np.argsort(X[:, 1]).argsort()[np.argsort(X[:, 1])], np.arange(40))
    assert np.array_equal(names.numpy()[order], (y[np.argsort(X[:, 1])] == "yes").astype(int))


def test_own_test_samples_are_taken_as_they_are(tmp_path):
    X, y = arrays()
    T, t = arrays(12, seed=1)
    path = saved(tmp_path, X=X, y=y, X_test=T, y_test=t)
    split = own.own_split(path, seed=0)
    assert np.allclose(split.X_test, (T - X.mean(0)) / X.std(0, ddof=1))
    assert np.array_equal(split.y_test, (t == "yes").astype(int))
    problems = own.on_own_data(path, "held-out")
    assert [p.network_name for p in problems] == [(3, 30), (10, 30), (20, 30)]
    assert problems[0].network(0, "pytorch")(split.X_test).shape == (12, 2)
    assert [p.network_name for p in own.on_own_data(path, "ladder")] == [p.network_name for p in LADDER]
    other = saved(tmp_path, X=X + 1.0, y=y)
    assert own.on_own_data(other, "ladder")[0].digest != problems[0].digest


def batch_sizes(problem):
    """What each kind of method may choose."""
    kinds = problem.gradient, problem.lbfgs, problem.separation
    return tuple(tuple(schedule.size for schedule in kind) for kind in kinds)


def test_on_own_data_everybody_may_choose_batches_as_on_digits(tmp_path):
    digits = next(p for p in HELD_OUT if p.name == "digits")
    X, y = arrays(1000)
    assert {batch_sizes(p) for p in own.on_own_data(saved(tmp_path, X=X, y=y), "held-out")} == {batch_sizes(digits)}
    assert batch_sizes(digits) == ((None, 128), (None,), (None, 256))
    ladder = own.on_own_data(saved(tmp_path, X=X, y=y), "ladder")
    assert {batch_sizes(p) for p in ladder} == {((None,), (None,), (None,))}


@pytest.mark.parametrize("method", ["adam", "fast"])
def test_batches_of_few_own_samples_can_be_trained_on(tmp_path, method):
    X, y = arrays(40)
    problem, *_ = own.on_own_data(saved(tmp_path, X=X, y=y), "held-out")
    assert batch_sizes(problem) == ((None, 15), (None,), (None, 15))  # of 30 training samples
    batches = (problem.separation if method == "fast" else problem.gradient)[-1]
    candidate = Candidate(method, "pytorch", None if method == "fast" else 0.01, batches)
    run = train(Task(problem, candidate, 100, 0.05, tuning=True))
    assert run.ok, run.outcome.ended


X_, Y_ = arrays()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"X": X_}, "no y"),
        ({"y": Y_}, "no X"),
        ({"X": X_, "y": Y_, "X_test": X_}, "no y_test"),
        ({"X": X_, "y": Y_, "y_test": Y_}, "no X_test"),
        ({"X": X_[:5], "y": Y_}, "X has 5 samples, but y has 40 labels"),
        ({"X": X_, "y": Y_.reshape(8, 5)}, "y has shape"),
        ({"X": X_, "y": np.zeros(40)}, "one class only"),
        ({"X": np.where(X_ > 9, np.nan, X_), "y": Y_}, "NaN"),
        ({"X": Y_[:, None], "y": Y_}, "not an array of numbers"),
        ({"X": X_, "y": Y_, "X_test": X_[:, :2], "y_test": Y_}, "X_test has 2"),
        ({"X": X_, "y": Y_, "X_test": X_, "y_test": np.full(40, "maybe")}, "'maybe'"),
        ({"X": np.array([{}] * 40), "y": Y_}, "plain arrays"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_the_reason(tmp_path, capsys, named, says):
    path = saved(tmp_path, **named)
    assert main(["bench", "ladder", "--data", str(path), "-o", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert says in message
    assert "my.npz" in message
    assert "defect" not in message
    assert not (tmp_path / "out").exists()


def test_what_is_no_npz_file_is_refused(tmp_path, capsys):
    path = tmp_path / "my.npz"
    path.write_text("a,b\n1,2\n")
    assert main(["bench", "ladder", "--data", str(path), "-o", str(tmp_path)]) == 1
    assert "np.savez" in capsys.readouterr().err
    assert main(["bench", "ladder", "--data", str(tmp_path / "none.npz"), "-o", str(tmp_path)]) == 1
    assert "none.npz" in capsys.readouterr().err
    np.save(tmp_path / "one.npy", X_)
    assert main(["bench", "ladder", "--data", str(tmp_path / "one.npy"), "-o", str(tmp_path)]) == 1
    assert "np.savez" in capsys.readouterr().err


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["ladder", "held-out"])
def test_a_rehearsal_writes_table_and_picture_and_does_nothing_twice(tmp_path, capsys, what):
    command = ["bench", what, "--quick", "--budget", "0.6", "-o", str(tmp_path)]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{what}: at most ")
    name = what.replace("-", "_")
    text = (tmp_path / f"{name}.md").read_text()
    assert "Where layer separation loses" in text
    assert "Machine: " in text
    assert "Error" not in text
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert f"]({name}.png)" in text
    assert main(command) == 0
    assert not [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]


def test_own_data_go_through_the_same_comparison(tmp_path, capsys):
    X, y = arrays()
    path = saved(tmp_path, X=X, y=y)
    assert main(["bench", "held-out", "--data", str(path), "--quick", "--budget", "0.3", "-o", str(tmp_path)]) == 0
    assert "my (3,30)" in (tmp_path / "held_out.md").read_text()


def test_a_choice_that_leaves_nothing_names_what_there_is(tmp_path, capsys):
    assert main(["bench", "held-out", "--only", "circle", "-o", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert all(p.title in message for p in HELD_OUT)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "ladder", "--seeds", "0", "-o", str(tmp_path)])
    assert ended.value.code == 2
