"""The store of runs (studies/runs.py)."""

import json
import math
from itertools import pairwise

import pytest

import hand_made
from lysep.studies.runs import Run, Store, Thinned


def test_a_run_comes_back_as_it_was_saved(tmp_path):
    store, run = Store(tmp_path), hand_made.run(loss=0.125)
    assert run.specification not in store
    assert store.get(run.specification) is None
    path = store.save(run)
    again = store.get(run.specification)
    assert run.specification in store
    assert (again.specification, again.machine, again.outcome) == (run.specification, run.machine, run.outcome)
    assert again.history == run.history
    assert again.column("cross_entropy") == run.column("cross_entropy")
    assert len(path.read_text().splitlines()) == 1 + len(run.history) + 1
    assert [r.specification for r in store] == [run.specification]


def test_a_file_is_json_lines_even_where_a_number_is_not_one(tmp_path):
    run = hand_made.run()
    run = Run(run.specification, run.machine, run.columns, [[1, math.inf, math.nan, 1 / 3]], run.outcome)
    path = Store(tmp_path).save(run)

    def refuse(word):
        raise AssertionError(word)

    lines = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert lines[1] == [1, None, None, 0.333333]
    assert math.isnan(Store(tmp_path).get(run.specification).history[0][1])


def test_the_specification_alone_says_which_run_it_is(tmp_path):
    store, run = Store(tmp_path), hand_made.run()
    path = store.path(run.specification)
    assert store.path(dict(reversed(run.specification.items()))) == path
    for name, other in (("seed", 1), ("sweeps", 5), ("network", [3, 11]), ("start", "xavier"), ("data_seed", 3)):
        assert store.path({**run.specification, name: other}) != path
    elsewhere = Run(run.specification, {"cpu": "another"}, run.columns, run.history, run.outcome)
    assert store.save(run) == store.save(elsewhere)
    assert store.get(run.specification).machine == {"cpu": "another"}


def test_a_run_that_cannot_be_written_leaves_nothing(tmp_path):
    run = hand_made.run()
    broken = Run(run.specification, {"cpu": object()}, run.columns, run.history, run.outcome)
    with pytest.raises(TypeError):
        Store(tmp_path).save(broken)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda text: text[:100], lambda text: "", lambda text: text.replace("status", "x")])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = Store(tmp_path).save(hand_made.run())
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=rf"{path.name} is not a run .*Remove it"):
        list(Store(tmp_path))


@pytest.mark.parametrize("step", [1, 20])
def test_a_long_history_keeps_its_beginning_its_end_and_an_even_share_of_every_decade(step):
    history = Thinned(["sweep"])
    for sweep in range(step, 9_990 + step, step):
        history.append({"sweep": sweep, "unwanted": 0.0})
    kept = [sweep for (sweep,) in history.rows]
    assert kept[: 100 // step] == list(range(step, 101, step))
    assert kept[-1] == range(step, 9_990 + step, step)[-1]
    assert len(set(kept)) == len(kept)
    gaps = [b / a for a, b in pairwise(kept) if a >= 1000]
    assert max(gaps) < 10 ** (2.1 / 50)
    assert 40 <= sum(1000 < sweep < 10_000 for sweep in kept) <= 51


def test_an_empty_history_is_empty():
    assert Thinned(["sweep"]).rows == []
