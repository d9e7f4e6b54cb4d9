"""The figures that the paper prints in Tables 5.1 to 5.3, to be laid beside our own; as printed in paper_values.csv.

They are of training: the loss and the accuracy after 10,000 iterations, mean and standard deviation over ten seeds. For
Tables 5.1 and 5.2 that is the whole training set; for 5.3 the paper does not say, but what goes with the method, and
with accuracies that high, is the batch of 1,500 images in hand at the end.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Spread(NamedTuple):
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float


class PaperValue(NamedTuple):
    """One printed row; the accuracy as a fraction of one."""

    cross_entropy: Spread
    accuracy: Spread


class Place(NamedTuple):
    """Where a row stands: the table ("table1" for 5.1, …); (L, M) or (L_1, C); "LySep" or "CE"; t in table 5.2."""

    table: str
    network: tuple[int, int]
    model: str
    time: float | None = None


@cache
def paper_values() -> dict[Place, PaperValue]:
    """Every row of the three tables, in their order."""
    text = (files("lysep.studies") / "paper_values.csv").read_text()
    return dict(_row(line) for line in csv.DictReader(text.splitlines()))


def _row(line: dict[str, str]) -> tuple[Place, PaperValue]:
    time = float(line["time"]) if line["time"] else None
    place = Place(line["table"], (int(line["first"]), int(line["second"])), line["model"], time)
    cross_entropy = Spread(float(line["cross_entropy"]), float(line["cross_entropy_deviation"]))
    accuracy = Spread(float(line["accuracy_percent"]) / 100.0, float(line["accuracy_percent_deviation"]) / 100.0)
    return place, PaperValue(cross_entropy, accuracy)
