"""Runs with figures chosen by hand, so that what tables and pages make of them can be said beforehand."""

from lysep.studies.paper import DATA_SEED, TUNING_DATA_SEED, Cell
from lysep.studies.runs import Outcome, Run, Store

MACHINE = {"cpu": "abacus", "cores": 1, "torch": "2.13", "device": "cpu"}
COLUMNS = ("sweep", "cross_entropy", "accuracy", "seconds")

LYSEP, DESCENT = (Cell("circle", (3, 10), method) for method in ("paper", "gd"))


def run(
    cell=LYSEP,
    seed=0,
    loss=0.25,
    accuracy=0.5,
    sweeps=4,
    failed=False,
    test=(0.5, 0.75),
    data_seed=DATA_SEED,
    **options,
):
    """A run whose loss falls evenly from 1 to what it ends at."""
    start = options.pop("start", "separation")
    specification = cell.specification(seed, sweeps, data_seed, start, **options)
    history = [[k, 1.0 + (loss - 1.0) * k / sweeps, accuracy, 0.5 * k] for k in range(1, sweeps + 1)]
    names = ("cross_entropy", "accuracy")
    scores = {"train": dict(zip(names, (loss, accuracy), strict=True)), "test": dict(zip(names, test, strict=True))}
    if cell.batch_size is not None:
        scores["last_batch"] = {"cross_entropy": loss / 2, "accuracy": accuracy}
    outcome = Outcome("ok", "ran all the sweeps that were asked for", sweeps, 1.0, scores, "01" * 500)
    if failed:
        outcome, history = Outcome("failed", "ArithmeticError: made <to> fail", 1, 1.0), history[:1]
    return Run(specification, MACHINE, COLUMNS, history, outcome)


def tuning_run(loss, seed=100, cell=DESCENT, **options):
    return run(cell, seed, loss, data_seed=TUNING_DATA_SEED, sweeps=options.pop("sweeps", 1000), **options)


def store_for_every_table(folder):
    """Enough to draw every figure and to have every table say something; one run of each purpose failed."""
    store = Store(folder)
    for made in _for_every_table():
        store.save(made)
    return store


def _for_every_table():
    yield from (run(seed=0, loss=0.01, accuracy=0.99), run(seed=1, loss=0.03, accuracy=0.97), run(seed=2, failed=True))
    yield run(DESCENT, learning_rate=0.1, start="xavier")
    for method in ("paper", "gd"):
        yield run(Cell("circle", (20, 10), method), start="xavier")
        for time in (0.0, 0.001, 0.004, 0.015):
            yield run(Cell("interface", (20, 20), method, time), start="xavier")
        yield run(Cell("mnist", (2, 4), method, batch_size=1500), start="xavier")
        yield run(Cell("digits", (2, 4), method, batch_size=500), start="xavier")
    yield tuning_run(0.2, learning_rate=0.3)
    yield tuning_run(0.3, learning_rate=1.0)
    yield tuning_run(0.1, learning_rate=3.0, failed=True)
