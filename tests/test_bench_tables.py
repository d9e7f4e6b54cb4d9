"""The tables and pictures of `lysep bench` (studies/bench: tables, figures), from runs that were made up."""

import math
from dataclasses import replace

from lysep.studies.bench import figures, tables
from lysep.studies.bench.conduct import Entry
from lysep.studies.bench.training import Candidate
from lysep.studies.bench.tuning import Family
from test_bench import ADAM, SMALL, run_of

OURS, THEIRS = Family("ours", True, lambda p: []), Family("theirs", False, lambda p: [])


def times(*seconds):
    """Runs that reach 1e-2, and no less, in so many seconds; infinite: at 0.5 for ever."""
    curves = [
        [(0.0, 0.7, 0.5), (6.0, 0.5, 0.6)] if math.isinf(s) else [(0.0, 0.7, 0.5), (s, 0.01, 0.9)] for s in seconds
    ]
    return [run_of(curve, seed=seed) for seed, curve in enumerate(curves)]


def entries_of(ours, theirs, problem=SMALL):
    return [Entry(problem, OURS, ADAM, ours), Entry(problem, THEIRS, ADAM, theirs)]


def test_the_ladder_shows_medians_quartiles_and_how_many_got_there():
    text = "\n".join(tables.ladder(entries_of(times(1.0, 2.0, 3.0), times(4.0, math.inf, 5.0, 6.0))))
    section = text.split("cross-entropy 0.01\n")[1]
    assert "| ours | 2 [1.5, 2.5] |" in section
    assert "| theirs | 5.5 [4.8, –] (3/4) |" in section
    assert text.count("– (0/3)") == 2  # 1e-3 and 1e-4


def test_the_best_optimizer_is_what_the_others_are_measured_by():
    entries = entries_of(times(1.0, 1.0, 1.0), times(4.0, 4.0, 4.0))
    entries.append(Entry(SMALL, Family("rare", False, lambda p: []), ADAM, times(0.1, 0.1, math.inf)))
    line = tables.against_the_best(entries)[-1]
    assert line == "| small (3,4) | theirs: 4 [4, 4] | 0.25 × |"
    alone = tables.against_the_best(entries_of(times(1.0, 1.0, math.inf), times(*[math.inf] * 3)))
    assert alone[-1] == "| small (3,4) | theirs: – (0/3) | gets there alone (2/3) |"
    assert tables.against_the_best(entries_of(times(math.inf), times(1.0)))[-1].endswith("| – (0/1) |")


def test_times_are_also_said_in_sweeps_and_in_steps_of_adam():
    ours = [run_of([(0.0, 0.7, 0), (1.0, 0.5, 0), (s, 0.01, 0)]) for s in (6.0, 12.0)] + times(math.inf)
    adam = [run_of([(0.0, 0.7, 0), (2.0, 0.5, 0), (s, 0.4, 0)]) for s in (4.0, 8.0, 6.0)]  # 2, 4 and 3 seconds a step
    line = tables.in_steps([Entry(SMALL, OURS, Candidate("fast", "pytorch"), ours), Entry(SMALL, THEIRS, ADAM, adam)])[
        -1
    ]
    assert line == "| small (3,4) | ours | 2 [2, –] (2/3) | 4 [3, –] (2/3) |"


def test_choices_at_the_edge_of_their_grid_are_named_below_what_was_chosen():
    family = Family("wide", False, lambda p: [Candidate("adam", "pytorch", rate) for rate in (0.01, 0.1, 1.0)])
    inside, edge = (Entry(SMALL, family, Candidate("adam", "pytorch", rate), times(1.0)) for rate in (0.1, 1.0))
    assert tables.settings([inside])[-1] == "| small (3,4) | wide | adam 0.1, pytorch start |"
    *_, table, between, said = tables.settings([inside, edge])
    assert table == "| small (3,4) | wide | adam 1, pytorch start |"
    assert between == ""
    assert said == "Learning rates chosen at the edge of their grid (of three or more): small (3,4), wide 1."


def losses(entries, measures=lambda problem: tables.time_measures()):
    return [line for line in tables.verdict(entries, measures) if line]


def test_where_layer_separation_loses_is_said_and_where_it_does_not():
    title, says, first, second = losses(entries_of(times(2.0, 2.0), times(1.0, 1.0)))
    assert title == "## Where layer separation loses"
    assert says.startswith("In 2 of 2 comparisons")
    assert first == "- small (3,4), to 0.0339: theirs 1 [1, 1], against ours 2 [2, 2]."
    assert "to 0.01" in second
    assert "In none of 2 comparisons" in losses(entries_of(times(1.0, 1.0), times(2.0, 2.0)))[1]
    assert "In 2 of 2" in losses(entries_of(times(1.0, math.inf), times(9.0, 9.0)))[1]  # seldom is worse than late


def test_accuracy_that_is_lower_is_a_loss_at_that_time():
    problem = replace(SMALL, target=None, budget=6.0)
    ours = [run_of([(0.0, 1, 0.1), (0.5, 1, 0.9), (4.0, 1, 0.91)])]
    theirs = [run_of([(0.0, 1, 0.1), (0.7, 1, 0.8), (4.0, 1, 0.95)])]
    said = losses(entries_of(ours, theirs, problem), tables.accuracy_measures)
    assert said[1].startswith("In 1 of 3 comparisons")
    assert said[2] == "- small (3,4), after 6 s: theirs 95.00% [95.00%, 95.00%], against ours 91.00% [91.00%, 91.00%]."
    table = tables.held_out(entries_of(ours, theirs, problem))
    assert table[3].startswith("| method | 1 s | 3 s | 6 s |")
    assert table[5].startswith("| ours | 90.00% [90.00%, 90.00%] | 90.00% [90.00%, 90.00%] | 91.00% [91.00%, 91.00%] |")


def test_every_failure_is_shown():
    broken = run_of([(0.0, 0.7, 0)], seed=7, status="failed", ended="ValueError: no")
    lines = tables.failures(entries_of(times(1.0, math.inf), [broken]))
    assert "| small (3,4) | ours | 1 of 2 | 1: 0.5 |" in lines
    assert "| small (3,4) | theirs | 1 of 1 | 7: 0.7 (ValueError: no) |" in lines
    assert tables.failures(entries_of(times(1.0), times(1.0)))[-1] == "None."


def test_the_machine_and_its_load_are_said():
    text = "\n".join(tables.colophon(times(1.0, 2.0)))
    assert "made up, 1 cores" in text
    assert "0.5 to 0.5" in text


def test_pictures_show_medians_and_who_did_not_get_there():
    entries = entries_of(times(1.0, 2.0, 3.0), times(math.inf, math.inf, 5.0))
    panels = figures.ladder(entries).axes
    assert len(panels) == 4
    line, *_ = [c for c in panels[1].containers if c.get_label() == "ours"]
    assert list(line[0].get_ydata()) == [2.0]
    above = max(max(drawn.get_ydata(), default=0.0) for drawn in panels[1].lines)
    assert above == 2.0 * SMALL.budget
    problem = replace(SMALL, target=None, budget=6.0)
    axes = figures.held_out(entries_of(times(1.0), times(2.0), problem)).axes
    assert [drawn.get_ydata()[-1] for drawn in axes[0].lines] == [0.9, 0.9]
