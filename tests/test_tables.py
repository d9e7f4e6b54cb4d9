"""Tables from runs (studies/tables.py) and the choice of starts and learning rates (studies/tuning.py)."""

from dataclasses import replace

import pytest

import hand_made
from hand_made import DESCENT, LYSEP, run, tuning_run
from lysep.studies.paper import ALL_TABLES, GRIDS, PRINTED_AS, STAND_INS, TABLES, Cell, cells_of
from lysep.studies.paper_values import Place, Spread, paper_values
from lysep.studies.runs import Store
from lysep.studies.tables import Row, apart, comparable, difference, entries, heads, markdown, printed, rows
from lysep.studies.tuning import Effort, candidates, choose, late_loss, reported_specifications, tuning_specifications

CIRCLE = TABLES["table1"]
MNIST_CELL = next(cell for cell in TABLES["table3"].cells if cell.network == (2, 4) and cell.method == "paper")


def only_row(table, runs):
    (row,) = [row for row in rows(table, runs) if isinstance(row, Row)]
    return row


def as_text(table, row):
    """Columns by group and name."""
    return {tuple(head): entry.text for head, entry in zip(heads(table), entries(table, row), strict=True)}


def test_a_row_is_mean_and_deviation_over_its_seeds_beside_the_papers():
    row = only_row(CIRCLE, [run(seed=s, loss=x, accuracy=a) for s, x, a in ((0, 0.01, 0.99), (1, 0.03, 0.97))])
    spread = row.spread("train", "cross_entropy")
    assert spread == pytest.approx((0.02, 0.01 * 2**0.5))
    assert difference(spread, Spread(0.01, 0.004)) == pytest.approx(2.5)
    text = as_text(CIRCLE, row)
    assert text["training cross-entropy", "paper"] == "6.75e-03 ± 3.00e-03"
    assert text["training cross-entropy", "here"] == "2.00e-02 ± 1.41e-02"
    assert text["training cross-entropy", "difference"] == f"{(0.02 - 6.75e-3) / 3e-3:+.1f}"
    assert text["training accuracy", "paper"] == "99.83% ± 0.15%"
    assert text["training accuracy", "here"] == "98.00% ± 1.41%"
    assert text["training accuracy", "difference"] == f"{(98.0 - 99.83) / 0.15:+.1f}"
    assert text["test", "accuracy"] == "75.00% ± 0.00%"
    assert (text["", "seeds"], text["", "failed"], text["", "iterations"]) == ("2", "0", "4")


def test_one_seed_has_no_deviation():
    assert as_text(CIRCLE, only_row(CIRCLE, [run(loss=0.02)]))["training cross-entropy", "here"] == "2.00e-02"


def test_a_failed_run_is_counted_and_not_averaged():
    row = only_row(CIRCLE, [run(seed=0, loss=0.02), run(seed=1, failed=True), run(seed=2, loss=0.04)])
    assert (row.seeds, len(row.failed)) == (2, 1)
    text = as_text(CIRCLE, row)
    assert text["", "failed"] == "1"
    assert text["training cross-entropy", "here"].startswith("3.00e-02")
    all_failed = as_text(CIRCLE, only_row(CIRCLE, [run(failed=True)]))
    assert (all_failed["", "seeds"], all_failed["", "failed"]) == ("0", "1")
    assert all_failed["training cross-entropy", "here"] == ""


def test_runs_to_tune_by_are_not_reported():
    assert all(isinstance(row, Cell) for row in rows(CIRCLE, [tuning_run(0.1, learning_rate=0.1)]))


def test_of_several_sets_of_runs_the_longest_counts_and_then_the_largest():
    short = [run(seed=s, sweeps=4, loss=0.5) for s in range(3)]
    long = [run(seed=s, sweeps=8, loss=0.25) for s in range(1)]
    other = [run(DESCENT, s, 0.1, learning_rate=0.1) for s in range(2)]
    larger = [run(DESCENT, s, 0.2, learning_rate=0.3) for s in range(3)]
    by_cell = {row.cell: row for row in rows(CIRCLE, [*short, *long, *other, *larger]) if isinstance(row, Row)}
    assert (by_cell[LYSEP].seeds, by_cell[LYSEP].specification["sweeps"]) == (1, 8)
    assert (by_cell[DESCENT].seeds, by_cell[DESCENT].specification["learning_rate"]) == (3, 0.3)


def test_of_equally_long_sets_the_one_that_did_best_in_the_trials_counts():
    large = [run(DESCENT, s, 0.1, learning_rate=0.1) for s in range(3)]
    small = [run(DESCENT, s, 0.2, learning_rate=0.3) for s in range(2)]
    tried = [tuning_run(0.2, learning_rate=0.1), tuning_run(0.1, learning_rate=0.3)]
    assert only_row(CIRCLE, [*large, *small, *tried]).specification["learning_rate"] == 0.3
    assert only_row(CIRCLE, [*large, *small]).specification["learning_rate"] == 0.1


def test_the_best_seed_is_that_of_the_lowest_training_loss():
    row = only_row(CIRCLE, [run(seed=0, loss=0.3), run(seed=1, loss=0.2), run(seed=2, failed=True)])
    assert row.best().specification["seed"] == 1
    assert only_row(CIRCLE, [run(failed=True)]).best() is None


def test_with_mini_batches_the_last_one_is_compared():
    table = TABLES["table3"]
    assert comparable(table) == "last_batch"
    text = as_text(table, only_row(table, [run(MNIST_CELL, loss=0.06)]))
    assert text["last batch cross-entropy", "here"] == "3.00e-02"
    assert text["training", "cross-entropy"] == "6.00e-02"
    assert text["test", "cross-entropy"] == "5.00e-01"
    assert text["last batch cross-entropy", "difference"] == f"{(0.03 - 2.92e-2) / 4.87e-3:+.1f}"


def test_layer_separation_is_judged_by_two_deviations_either_measure():
    good = run(loss=6.75e-3 + 1.9 * 3e-3, accuracy=0.9983)
    bad_loss, bad_accuracy = (
        run(loss=6.75e-3 + 2.1 * 3e-3, accuracy=0.9983),
        run(loss=1e-4, accuracy=0.9983 - 2.1 * 0.0015),
    )
    worse = {"method": "paper", "better": False}
    assert apart(CIRCLE, rows(CIRCLE, [good]), **worse) == []
    assert apart(CIRCLE, rows(CIRCLE, [bad_loss]), **worse) == ["(3,10)"]
    assert apart(CIRCLE, rows(CIRCLE, [bad_accuracy]), **worse) == ["(3,10)"]
    marks = [entry.reached for entry in entries(CIRCLE, only_row(CIRCLE, [bad_loss])) if entry.reached is not None]
    assert marks == [False, True]


def test_gradient_descent_is_compared_and_not_judged():
    tuned = run(DESCENT, loss=5.27e-2 - 2.1 * 6.01e-3, accuracy=0.991, learning_rate=0.1)
    assert apart(CIRCLE, rows(CIRCLE, [tuned]), "gd", better=True) == ["(3,10)"]
    assert apart(CIRCLE, rows(CIRCLE, [tuned]), "gd", better=False) == []
    assert {entry.reached for entry in entries(CIRCLE, only_row(CIRCLE, [tuned]))} == {None}


def test_markdown_has_a_line_a_row_and_says_what_was_not_run():
    lines = markdown(CIRCLE, rows(CIRCLE, [run()])).splitlines()
    assert len(lines) == 2 + 5 * 4
    assert len({line.count("|") for line in lines}) == 1
    assert sum("not run" in line for line in lines) == 5 * 4 - 1


def test_the_protocol_has_every_row_that_the_paper_prints_and_no_other():
    ours = {
        Place(table.name, cell.network, PRINTED_AS[cell.method], cell.time)
        for table in TABLES.values()
        for cell in table.cells
        if cell.method in PRINTED_AS
    }
    assert ours == set(paper_values())


def test_nothing_printed_stands_beside_other_data_or_other_methods():
    digits = STAND_INS["digits"]
    assert all(printed(digits, cell) is None for cell in digits.cells)
    assert printed(CIRCLE, Cell("circle", (3, 10), "adam")) is None


def test_every_cell_has_a_grid():
    for table in ALL_TABLES:
        assert all(cell.method in GRIDS[table.problem] for cell in table.cells)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ([], 48),
        (["3,30"], 16),
        (["(3,30)", "20x20"], 32),
        (["t=0.004"], 12),
        (["t=0.004", "gd"], 3),
        (["3,30", "t=0", "paper", "adam"], 2),
    ],
)
def test_only_narrows_by_kind(only, expected):
    assert len(cells_of("table2", only)) == expected


@pytest.mark.parametrize("only", [["3,31"], ["sgd"], ["t=nine"], ["3,30,1"], ["paper", "t=0.5"]])
def test_only_that_names_nothing_is_refused_with_what_there_is(only):
    with pytest.raises(ValueError, match=r"--only .*3,10.*t=0.004.*adam"):
        cells_of("table2", only)


def test_a_figure_is_made_of_runs_of_a_table():
    assert set(cells_of("figure3")) <= set(cells_of("figure2")) <= set(cells_of("table1"))
    assert set(cells_of("figure4")) <= set(cells_of("table2"))
    assert cells_of("figure1") == []


# How a method chooses.

EFFORT = Effort(sweeps=10_000, seeds=10, tuning_sweeps=1000, tuning_seeds=(100, 101))


def tuned_store(tmp_path, losses):
    """A store with all tuning runs of gradient descent; `losses` by start and rate, else 0.9."""
    store = Store(tmp_path)
    for choice in candidates(DESCENT):
        rate = choice.options["learning_rate"]
        loss = losses.get((choice.start, rate), 0.9)
        for seed in (100, 101):
            failed = loss is None and seed == 101
            store.save(tuning_run(loss or 0.01, seed, failed=failed, start=choice.start, learning_rate=rate))
    return store


def test_the_lowest_mean_loss_is_chosen_and_a_failure_is_never_lowest(tmp_path):
    store = tuned_store(tmp_path, {("pytorch", 0.3): 0.2, ("xavier", 0.1): 0.3, ("xavier", 3.0): None})
    choice = choose(DESCENT, EFFORT, store)
    assert (choice.start, choice.options) == ("pytorch", {"learning_rate": 0.3})


def test_nothing_is_chosen_while_a_candidate_has_not_been_run(tmp_path):
    store = tuned_store(tmp_path, {})
    last = tuning_specifications(DESCENT, candidates(DESCENT)[-1], EFFORT)[-1]
    store.path(last).unlink()
    assert choose(DESCENT, EFFORT, store) is None


def test_a_loss_is_judged_by_its_last_quarter():
    losses = [1.0 + (0.2 - 1.0) * k / 1000 for k in range(751, 1001)]
    assert late_loss(tuning_run(0.2)) == pytest.approx(sum(losses) / len(losses))
    assert late_loss(tuning_run(0.2, failed=True)) == float("inf")


def test_seeds_and_samples_that_choose_are_not_reported_ones():
    choice = candidates(DESCENT)[0]
    tuning = tuning_specifications(DESCENT, choice, EFFORT)
    reported = reported_specifications(DESCENT, choice, EFFORT)
    assert [s["seed"] for s in reported] == list(range(10))
    assert {s["seed"] for s in tuning}.isdisjoint(range(100))
    assert {s["data_seed"] for s in tuning}.isdisjoint({s["data_seed"] for s in reported})


def test_a_network_is_tuned_at_one_time_slice_for_all():
    cell = Cell("interface", (3, 30), "adam", 0.015)
    found = [tuning_specifications(replace(cell, time=t), candidates(cell)[0], EFFORT) for t in (0.0, 0.015)]
    assert found[0] == found[1]
    assert found[0][0]["time"] == 0.004


def test_what_has_one_candidate_needs_no_tuning(tmp_path):
    assert choose(hand_made.LYSEP, EFFORT, Store(tmp_path)).start == "separation"
