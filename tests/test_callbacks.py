"""What a run tells (callbacks.py): early stopping and logs."""

import csv
import math
import subprocess
import sys

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import lysep
from lysep import CSVLog, EarlyStopping, Status, TensorBoardLog
from small import Recorder, X, Y, disk, network, plain_scores, same, values

# A third of the labels is wrong, so that the best sweep is the fifth and the later ones are worse.
HELD_OUT = disk(17)
HELD_OUT[1][torch.randperm(17, generator=torch.Generator().manual_seed(2))[:6]] ^= 1


def row(sweep, value, name="validation_cross_entropy"):
    return {"sweep": sweep, name: value}


def told(stopping, monitored, name="validation_cross_entropy"):
    """The answers of a callback that is told these numbers, and the state it was given with each."""
    states, answers = [], []
    for sweep, value in enumerate(monitored, 1):
        states.append(lysep.separate(network(seed=sweep), X, Y))
        answers.append(stopping(lysep.Progress(sweep, row(sweep, value, name), states[-1])))
    return answers, states


# -- early stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "monitored", "stops_at", "best"),
    [
        ({"patience": 3}, [5, 4, 3, 3, 3, 3], 6, 3),
        ({"patience": 3}, [5, 4, 6, 6, 3, 4, 4, 4], 8, 5),
        ({"patience": 1}, [5, 4, 3, 2, 1], None, 5),
        ({"patience": 1}, [5, 5], 2, 1),
        # Gains of 0.4 each do not count one by one, but do together; the best sweep is the best all the same.
        ({"patience": 3, "min_delta": 1.0}, [5, 4.6, 4.2, 3.8, 3.4, 3.0, 2.6], None, 7),
        ({"patience": 2, "min_delta": 1.0}, [5, 4.6, 4.2], 3, 3),
        ({"patience": 3}, [math.nan, math.inf, 4, math.nan, math.nan, math.nan], 6, 3),
        ({"patience": 2}, [math.nan, math.nan], 2, 1),
    ],
)
def test_it_stops_after_so_many_sweeps_without_improvement(options, monitored, stops_at, best):
    stopping = EarlyStopping(**options)
    answers, states = told(stopping, monitored)
    assert answers == [stops_at is not None and sweep >= stops_at for sweep in range(1, len(answers) + 1)]
    assert stopping.best_sweep == best
    kept = stopping.finish(lysep.Progress(len(states), row(len(states), 0.0), states[-1]))
    assert kept.sweep == best
    assert same(values(kept.state), values(states[best - 1]))


def test_more_is_better_of_an_accuracy():
    stopping = EarlyStopping(2, monitor="accuracy")
    answers, _ = told(stopping, [0.5, 0.7, 0.6, 0.7], "accuracy")
    assert answers == [False, False, False, True]
    assert stopping.best_sweep == 2


def test_a_run_that_is_stopped_early_returns_the_best_model_on_held_out_data():
    seen, model = Recorder(), network()
    stopping = EarlyStopping(patience=4, monitor="validation_cross_entropy")
    result = lysep.fit(model, X, Y, validation=HELD_OUT, sweeps=500, callbacks=[stopping, seen])
    losses = result.history["validation_cross_entropy"]
    best = losses.index(min(losses))
    assert result.status is Status.STOPPED
    assert len(losses) == best + 1 + 4
    assert result.kept_sweep == stopping.best_sweep == best + 1
    assert same(values(model), values(seen.seen[best].state))
    assert plain_scores(model, *HELD_OUT)[0] == pytest.approx(min(losses), rel=1e-12)
    assert min(losses) < losses[-1]
    assert f"the model is that of sweep {best + 1}" in repr(result)


def test_the_best_model_is_kept_however_the_run_ends():
    """All the sweeps that were asked for, or Ctrl-C: past the best there is one that is worse."""

    def interrupt(progress):
        if progress.sweep == 45:
            raise KeyboardInterrupt

    for more, status in (([], Status.COMPLETED), ([interrupt], Status.INTERRUPTED)):
        seen, model = Recorder(), network()
        stopping = EarlyStopping(patience=10**6)
        callbacks = [stopping, seen, *more]
        result = lysep.fit(model, X, Y, method="paper", validation=HELD_OUT, sweeps=60, callbacks=callbacks)
        losses = result.history["validation_cross_entropy"]
        assert result.status is status
        assert 1 < result.kept_sweep == losses.index(min(losses)) + 1 < len(losses)
        assert same(values(model), values(seen.seen[result.kept_sweep - 1].state))


def test_the_last_model_is_returned_if_the_best_is_not_wanted():
    seen, model = Recorder(), network()
    stopping = EarlyStopping(patience=4, restore_best=False)
    result = lysep.fit(model, X, Y, validation=HELD_OUT, sweeps=500, callbacks=[stopping, seen])
    assert result.kept_sweep == len(result.history) > stopping.best_sweep
    assert same(values(model), values(seen.seen[-1].state))
    assert "model is that of" not in repr(result)


def test_a_second_run_knows_nothing_of_the_first():
    stopping, histories, models = EarlyStopping(patience=4), [], []
    for _ in range(2):
        models.append(network())
        result = lysep.fit(models[-1], X, Y, validation=HELD_OUT, sweeps=500, callbacks=[stopping])
        histories.append(result.history["objective"])
    assert histories[0] == histories[1]
    assert same(values(models[0]), values(models[1]))
    wider = torch.nn.Sequential(torch.nn.Linear(2, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2)).double()

    def interrupt(progress):
        raise KeyboardInterrupt

    lysep.fit(wider, X, Y, validation=HELD_OUT, callbacks=[interrupt, stopping])
    assert stopping.best_sweep is None


def test_what_it_remembers_may_be_handed_to_another_which_goes_on_alike():
    monitored = [5, 4, 3, 3.5, 3.2, 3.1, 3.05]
    whole, first, second = (EarlyStopping(4) for _ in range(3))
    expected, states = told(whole, monitored)
    told(first, monitored[:5])
    second.load_state_dict(first.state_dict())
    for sweep in (6, 7):
        answer = second(lysep.Progress(sweep, row(sweep, monitored[sweep - 1]), states[sweep - 1]))
        assert answer == expected[sweep - 1]
    assert second.best_sweep == 3
    kept = second.finish(lysep.Progress(7, row(7, 0.0), states[-1]))
    assert same(values(kept.state), values(states[2]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": 0}, "patience=0 must be a positive integer"),
        ({"patience": True}, "patience=True"),
        ({"patience": 2.5}, r"patience=2\.5"),
        ({"min_delta": -1.0}, r"min_delta=-1\.0 must be zero or a positive"),
        ({"min_delta": math.nan}, "min_delta=nan"),
        ({"min_delta": "a"}, "min_delta='a'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EarlyStopping(**options)


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        ("validation_cross_entropy", r"is not recorded\. It is recorded with validation=\(X, y\)"),
        ("loss", "monitor='loss' is not recorded.*objective"),
    ],
)
def test_a_column_that_is_not_recorded_is_refused_and_the_model_left_alone(monitor, message):
    model = network()
    with pytest.raises(ValueError, match=message):
        lysep.fit(model, X, Y, sweeps=5, callbacks=[EarlyStopping(monitor=monitor)])
    assert same(values(model), values(network()))


# -- hooks -------------------------------------------------------------------------------------------------------------


def test_hooks_are_called_around_the_run_in_order():
    class Hooked:
        def __init__(self):
            self.calls = []

        def begin(self):
            self.calls.append("begin")

        def __call__(self, progress):
            self.calls.append(progress.sweep)
            return progress.sweep == 3

        def finish(self, progress):
            self.calls.append(("finish", progress.sweep, progress.row["sweep"]))

    hooked = Hooked()
    result = lysep.fit(network(), X, Y, sweeps=9, callbacks=[hooked])
    assert hooked.calls == ["begin", 1, 2, 3, ("finish", 3, 3)]
    assert result.kept_sweep == 3


def test_the_last_callback_that_chooses_decides_what_is_kept():
    class Keep:
        def __init__(self, sweep):
            self.sweep = sweep

        def __call__(self, progress):
            if progress.sweep == self.sweep:
                self.kept = progress

        def finish(self, progress):
            return self.kept

    model, seen = network(), Recorder()
    result = lysep.fit(model, X, Y, sweeps=9, callbacks=[Keep(4), seen, Keep(2)])
    assert result.kept_sweep == 2
    assert same(values(model), values(seen.seen[1].state))
    result = lysep.fit(network(), X, Y, sweeps=9, callbacks=[lambda p: p.row.clear(), EarlyStopping(monitor="bound")])
    assert result.kept_sweep >= 1  # what one does to its row is nothing to the next


# -- logs --------------------------------------------------------------------------------------------------------------


def test_the_csv_log_is_the_history(tmp_path):
    path = tmp_path / "new" / "log.csv"
    for sweeps in (6, 4):  # the second run begins the file anew
        result = lysep.fit(network(), X, Y, validation=HELD_OUT, sweeps=sweeps, callbacks=[CSVLog(path)])
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        assert header == list(result.history)
        assert [[float(cell) for cell in r] for r in rows] == [
            list(result.history.row(i).values()) for i in range(sweeps)
        ]
        result.history.to_csv(tmp_path / "history.csv")
        assert path.read_bytes() == (tmp_path / "history.csv").read_bytes()


def test_the_csv_log_is_up_to_date_after_every_sweep(tmp_path):
    path, lengths = tmp_path / "log.csv", []
    watch = [CSVLog(path), lambda progress: lengths.append(path.read_text().count("\n"))]
    lysep.fit(network(), X, Y, sweeps=4, callbacks=watch)
    assert lengths == [2, 3, 4, 5]


@pytest.mark.parametrize("torn", [b"", b"7,1,0.2", b"5,1", b"\x00\x00\x00", b"nonsense\r\n"])
def test_a_continued_csv_log_keeps_the_rows_before(tmp_path, torn):
    """Killed in sweep 7, or in the middle of a line, and continued with sweep 4."""
    path = tmp_path / "log.csv"
    state = lysep.separate(network(), X, Y)
    log = CSVLog(path)
    for sweep in range(1, 7):
        log(lysep.Progress(sweep, {"sweep": sweep, "loss": sweep / 7}, state))
    with path.open("ab") as file:
        file.write(torn)
    log.begin()
    for sweep in range(4, 9):
        log(lysep.Progress(sweep, {"sweep": sweep, "loss": -1.0}, state))
    rows = [line.split(",") for line in path.read_text().splitlines()]
    assert rows == [["sweep", "loss"], *[[str(s), str(s / 7 if s < 4 else -1.0)] for s in range(1, 9)]]


def test_a_csv_log_of_something_else_is_not_continued(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("name,age\nEve,31\n")
    with pytest.raises(ValueError, match=r"log\.csv cannot be continued"):
        CSVLog(path)(lysep.Progress(4, {"sweep": 4, "loss": 1.0}, lysep.separate(network(), X, Y)))
    assert path.read_text() == "name,age\nEve,31\n"


def test_a_csv_log_that_was_moved_away_begins_where_the_run_continues(tmp_path):
    CSVLog(tmp_path / "log.csv")(lysep.Progress(4, {"sweep": 4, "loss": 1.0}, lysep.separate(network(), X, Y)))
    assert (tmp_path / "log.csv").read_text().split() == ["sweep,loss", "4,1.0"]


def tensorboard(directory):
    events = EventAccumulator(str(directory))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_the_tensorboard_log_is_the_history(tmp_path):
    history = lysep.fit(network(), X, Y, sweeps=4, callbacks=[TensorBoardLog(tmp_path / "runs")]).history
    logged = tensorboard(tmp_path / "runs")
    assert set(logged) == set(history) - {"sweep"}
    for name, points in logged.items():
        expected = torch.tensor(history[name], dtype=torch.float32).tolist()  # TensorBoard keeps single precision
        assert points == list(enumerate(expected, 1))


def test_a_continued_tensorboard_log_replaces_what_lies_past_it(tmp_path):
    state = lysep.separate(network(), X, Y)
    log = TensorBoardLog(tmp_path)
    for sweeps, value in ((range(1, 7), 0.0), (range(4, 9), 1.0)):
        for sweep in sweeps:
            log(lysep.Progress(sweep, {"sweep": sweep, "loss": value}, state))
        log.begin()
    assert tensorboard(tmp_path)["loss"] == [(s, 0.0 if s < 4 else 1.0) for s in range(1, 9)]


def test_tensorboard_is_imported_when_it_is_asked_for_and_named_where_it_is_missing():
    code = """
import sys
import lysep
assert not any(name.split(".")[0] == "tensorboard" for name in sys.modules)
sys.modules["tensorboard"] = None
try:
    lysep.TensorBoardLog("runs")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'lysep[tensorboard]'" in done.stdout
