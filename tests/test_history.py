"""What a run recorded: columns, copies, CSV and pictures."""

import copy
import csv
import math
import pickle
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from torch import nn

import lysep
from lysep import History
from lysep.history import COLUMNS, VALIDATION_COLUMNS

ALL = COLUMNS + VALIDATION_COLUMNS


def filled(rows=3, columns=COLUMNS):
    """Every entry is another number, so that no column can be taken for another."""
    history = History(columns)
    for i in range(rows):
        history.append({name: i + 1 + place / 97 for place, name in enumerate(columns)})
    return history


def column(place, rows=3):
    return [i + 1 + place / 97 for i in range(rows)]


def trained(**options):
    X = torch.rand(30, 2) * 2 - 1
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    return lysep.fit(model, X, (X[:, 0] > 0).long(), sweeps=5, **options).history


# -- as a table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_its_length_is_the_number_of_sweeps(rows):
    assert len(filled(rows)) == rows


@pytest.mark.parametrize("columns", [COLUMNS, ALL, ("sweep", "cross_entropy", "accuracy")])
def test_it_iterates_over_the_names_of_its_columns(columns):
    history = filled(columns=columns)
    assert tuple(history) == tuple(history.keys()) == columns
    assert all(name in history for name in columns)
    for other in ("loss", 0, None, *set(ALL) - set(columns)):
        assert other not in history


def test_a_column_is_a_list_with_one_entry_a_sweep():
    history = filled(columns=ALL)
    for place, name in enumerate(ALL):
        assert type(history[name]) is list
        assert history[name] == column(place)


def test_a_row_is_a_sweep():
    history = filled(rows=3)
    assert history.row(1) == {name: 2 + place / 97 for place, name in enumerate(COLUMNS)}
    assert history.row(-1) == history.row(2)
    with pytest.raises(IndexError):
        history.row(3)


@pytest.mark.parametrize("name", ["loss", "Objective", 0, None, "validation_accuracy"])
def test_an_unknown_column_is_answered_with_those_there_are(name):
    with pytest.raises(KeyError) as caught:
        filled()[name]
    assert repr(name) in caught.value.args[0]
    assert all(column in caught.value.args[0] for column in COLUMNS)


def test_columns_rows_and_dictionaries_are_copies():
    history = filled()
    history["objective"].clear()
    history.row(0).clear()
    dictionary = history.to_dict()
    dictionary["objective"][0] = -1.0
    del dictionary["bound"]
    assert len(history["objective"]) == len(history["bound"]) == 3
    assert history["objective"][0] > 0.0
    assert history.row(0)["objective"] == history["objective"][0]


def test_to_dict_holds_everything():
    assert filled(columns=ALL).to_dict() == {name: column(place) for place, name in enumerate(ALL)}
    assert filled(rows=0).to_dict() == {name: [] for name in COLUMNS}


def test_an_earlier_to_dict_does_not_grow():
    history = filled()
    dictionary = history.to_dict()
    history.append(history.row(0))
    assert [len(values) for values in dictionary.values()] == [3] * len(COLUMNS)
    assert len(history) == 4


def test_the_order_of_an_appended_row_does_not_matter_and_it_is_copied():
    history, row = History(("sweep", "accuracy")), {"accuracy": 0.5, "sweep": 1}
    history.append(row)
    row["accuracy"] = 9.0
    assert history.to_dict() == {"sweep": [1], "accuracy": [0.5]}


@pytest.mark.parametrize(
    "row", [{}, {"sweep": 1}, {"sweep": 1, "loss": 2}, {"sweep": 1, "accuracy": 2, "loss": 3}], ids=str
)
def test_a_row_with_other_columns_is_refused_and_leaves_no_trace(row):
    history = History(("sweep", "accuracy"))
    with pytest.raises(ValueError, match=r"a row needs the columns sweep, accuracy; got"):
        history.append(row)
    assert len(history) == 0


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda h: pickle.loads(pickle.dumps(h))])
def test_it_can_be_copied_and_pickled(duplicate):
    history = filled()
    assert duplicate(history).to_dict() == history.to_dict()


# -- in words and files ------------------------------------------------------------------------------------------------


def test_its_repr_is_one_line_on_sweeps_loss_and_accuracy():
    assert repr(History()) == "History(0 sweeps)"
    history = History(("sweep", "cross_entropy", "accuracy"))
    history.append({"sweep": 1, "cross_entropy": 9.0, "accuracy": 0.1})
    history.append({"sweep": 2, "cross_entropy": 0.12345, "accuracy": 0.9875})
    assert repr(history) == "History(2 sweeps, cross-entropy 0.123, accuracy 98.75%)"
    assert repr(trained()).startswith("History(5 sweeps, ")


def read(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


@given(st.lists(st.tuples(st.integers(0, 2**60), st.floats(allow_nan=False)), max_size=5))
def test_a_csv_holds_every_number_exactly(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "history.csv"
    history = History(("sweep", "objective"))
    for sweep, objective in rows:
        history.append({"sweep": sweep, "objective": objective})
    history.to_csv(path)
    header, *lines = read(path)
    assert header == ["sweep", "objective"]
    assert [(int(sweep), float(objective)) for sweep, objective in lines] == rows


def test_the_csv_of_a_run_is_the_run(tmp_path):
    history = trained(validation=(torch.zeros(3, 2), torch.tensor([0, 1, 0])))
    history.to_csv(str(tmp_path / "history.csv"))
    header, *lines = read(tmp_path / "history.csv")
    assert tuple(header) == ALL
    assert len(lines) == 5
    for place, name in enumerate(header):
        assert [float(line[place]) for line in lines] == history[name]


def test_a_csv_replaces_the_file_and_has_no_empty_lines(tmp_path):
    (tmp_path / "history.csv").write_text("old\n" * 99)
    filled(rows=2).to_csv(tmp_path / "history.csv")
    assert [len(line) for line in read(tmp_path / "history.csv")] == [len(COLUMNS)] * 3


# -- in pictures -------------------------------------------------------------------------------------------------------


def curves(axis):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.get_lines()}


def expected_curves(history, names):
    return {label: (history["sweep"], history[name]) for label, name in names.items()}


LOSS = {"bound (certificate)": "bound", "cross-entropy": "cross_entropy"}
VALIDATION_LOSS = {"validation cross-entropy": "validation_cross_entropy"}


@pytest.mark.parametrize(
    ("columns", "loss", "accuracy"),
    [
        (COLUMNS, LOSS, {"training": "accuracy"}),
        (ALL, LOSS | VALIDATION_LOSS, {"training": "accuracy", "validation": "validation_accuracy"}),
        (("sweep", "cross_entropy", "accuracy"), {"cross-entropy": "cross_entropy"}, {"training": "accuracy"}),
    ],
    ids=["training", "with validation", "without a bound"],
)
def test_a_picture_shows_the_columns_with_labels_and_a_legend(columns, loss, accuracy):
    history = filled(columns=columns)
    figure = history.plot()
    left, right = figure.axes
    assert curves(left) == expected_curves(history, loss)
    assert curves(right) == expected_curves(history, accuracy)
    assert left.get_yscale() == "log"
    assert [(axis.get_xlabel(), axis.get_ylabel()) for axis in figure.axes] == [
        ("sweep", "loss"),
        ("sweep", "accuracy"),
    ]
    for axis, names in ((left, loss), (right, accuracy)):
        assert {text.get_text() for text in axis.get_legend().get_texts()} == set(names)


@pytest.mark.parametrize("history", [filled(0), filled(1), filled(3, ALL)], ids=["empty", "one sweep", "three"])
def test_a_picture_can_be_saved(history, tmp_path):
    figure = history.plot()
    assert isinstance(figure, Figure)
    figure.savefig(tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_of_a_perfect_fit_can_be_saved(tmp_path):
    history = History(("sweep", "cross_entropy", "accuracy"))
    for sweep, loss in enumerate([1.0, 1e-300, 0.0, math.inf]):
        history.append({"sweep": sweep, "cross_entropy": loss, "accuracy": 1.0})
    history.plot().savefig(tmp_path / "history.png")


def test_a_picture_needs_no_window_and_leaves_no_figure_open(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it now fails: it would choose a GUI backend
    monkeypatch.setenv("MPLBACKEND", "tkagg")
    trained().plot().savefig(tmp_path / "history.png")


def test_a_picture_goes_into_axes_that_are_given():
    mine = Figure()
    axes = mine.subplots(2, 1)
    history = filled()
    assert history.plot(axes) is mine
    assert history.plot(tuple(axes)) is mine
    assert len(mine.axes) == 2
    assert len(axes[0].get_lines()) == 4
    assert len(axes[1].get_lines()) == 2


def test_without_matplotlib_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'lysep\[plot\]'"):
        filled().plot()
