"""What a run recorded, one row a sweep."""

from __future__ import annotations

import csv
from collections.abc import Iterator, KeysView, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (
    "sweep",
    "batch",
    "objective",
    "separated_loss",
    "cross_entropy",
    "accuracy",
    "bound",
    "seconds",
    "rejected_updates",
    "line_search_evaluations",
    "skipped_updates",
)
VALIDATION_COLUMNS = ("validation_cross_entropy", "validation_accuracy")


class History:
    """Columns by name, as in a data frame: `history["objective"]` is a list with one entry a sweep.

    `len(history)` is the number of sweeps, iterating gives the names of the columns.
    `batch` counts the subsets of samples that were drawn. The objective never rises within one, and jumps to the value
    on the new samples when it changes; without mini-batches there is one batch. `cross_entropy` and
    `accuracy` are those of the nested network on the samples trained on; `seconds` count from the call of `fit`.
    """

    def __init__(self, columns: Sequence[str] = COLUMNS) -> None:
        self._places = {name: place for place, name in enumerate(columns)}
        self._rows: list[tuple[float, ...]] = []

    def append(self, row: Mapping[str, float]) -> None:
        if row.keys() != self._places.keys():
            raise ValueError(f"a row needs the columns {', '.join(self._places)}; got {', '.join(row)}.")
        self._rows.append(tuple(row[name] for name in self._places))

    def keys(self) -> KeysView[str]:
        return self._places.keys()

    def row(self, index: int) -> dict[str, float]:
        """One sweep as a dictionary; row(-1) is the last."""
        return dict(zip(self._places, self._rows[index], strict=True))

    def __getitem__(self, name: str) -> list[float]:
        if name not in self._places:
            raise KeyError(f"{name!r}; the columns are {', '.join(self._places)}")
        place = self._places[name]
        return [row[place] for row in self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __len__(self) -> int:
        """The number of sweeps."""
        return len(self._rows)

    def __repr__(self) -> str:
        if not len(self):
            return "History(0 sweeps)"
        last = self.row(-1)
        return (
            f"History({len(self)} sweeps, cross-entropy {last['cross_entropy']:.3g}, accuracy {last['accuracy']:.2%})"
        )

    def to_dict(self) -> dict[str, list[float]]:
        """A plain dictionary of lists, as pandas.DataFrame takes it."""
        return {name: self[name] for name in self}

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write all columns, numbers in full precision."""
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self._places)
            writer.writerows(self._rows)

    def plot(self, axes: Any = None) -> Figure:
        """Loss with its bound, and accuracy, against sweeps. Needs matplotlib: pip install 'lysep[plot]'."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("history.plot() needs matplotlib: pip install 'lysep[plot]'") from error
        if axes is None:
            axes = Figure(figsize=(9, 3.5), layout="constrained").subplots(1, 2)
        loss, accuracy = axes
        sweeps = self["sweep"]
        if "bound" in self:
            loss.semilogy(sweeps, self["bound"], color="0.6", linestyle="--", label="bound (certificate)")
        loss.semilogy(sweeps, self["cross_entropy"], color="C0", label="cross-entropy")
        accuracy.plot(sweeps, self["accuracy"], color="C0", label="training")
        if "validation_accuracy" in self:
            loss.semilogy(sweeps, self["validation_cross_entropy"], color="C1", label="validation cross-entropy")
            accuracy.plot(sweeps, self["validation_accuracy"], color="C1", label="validation")
        loss.set(xlabel="sweep", ylabel="loss")
        accuracy.set(xlabel="sweep", ylabel="accuracy")
        for axis in (loss, accuracy):
            axis.legend(frameon=False)
            axis.grid(alpha=0.25)
        figure: Figure = loss.figure
        return figure
