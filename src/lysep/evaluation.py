"""How well a classifier does on samples with known labels."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lysep import atomic, labels
from lysep.text import aligned

_DARK = 0.5  # of a cell, from which on its number is written in white


class Classifier(Protocol):
    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Evaluation:
    """Counts of samples by true class (rows) and predicted class (columns), and the cross-entropy. str(): a report."""

    classes: list[str]
    confusion: NDArray[np.int64]
    cross_entropy: float

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.confusion) / self.confusion.sum())

    def __str__(self) -> str:
        right, samples = int(np.trace(self.confusion)), int(self.confusion.sum())
        summary = [
            ["accuracy", f"{self.accuracy:.4f}", f"({right} of {samples})"],
            ["cross-entropy", f"{self.cross_entropy:.4g}", ""],
        ]
        parts = [aligned(summary), aligned(self._by_class()), "Rows are the true class, columns the predicted one:"]
        return "\n\n".join([*parts, aligned(self._matrix())])

    def picture(self, path: str | PathLike[str]) -> None:
        """Draw the confusion matrix into a file. Needs matplotlib: pip install 'lysep[plot]'."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("the picture needs matplotlib: pip install 'lysep[plot]'") from error
        size = 2.0 + 0.6 * len(self.classes)
        axes = (figure := Figure(figsize=(size, size), layout="constrained")).subplots()
        shares = self.confusion / np.maximum(self.confusion.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
        for (row, column), count in np.ndenumerate(self.confusion):
            color = "white" if shares[row, column] > _DARK else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=color)
        axes.set_xticks(range(len(self.classes)), self.classes, rotation=45, ha="right")
        axes.set_yticks(range(len(self.classes)), self.classes)
        axes.set(xlabel="predicted class", ylabel="true class", title=f"accuracy {self.accuracy:.2%}")
        with atomic.new_file(Path(path).resolve()) as draft:
            figure.savefig(draft)

    def _by_class(self) -> list[list[str]]:
        right, true, said = np.diag(self.confusion), self.confusion.sum(1), self.confusion.sum(0)
        rows = [["class", "precision", "recall", "F1", "samples"]]
        for place, name in enumerate(self.classes):
            shares = (_share(right[place], total) for total in (said[place], true[place]))
            both = _share(2 * right[place], said[place] + true[place])
            rows.append([name, *shares, both, str(true[place])])
        return rows

    def _matrix(self) -> list[list[str]]:
        rows = zip(self.classes, self.confusion, strict=True)
        return [["", *self.classes], *([name, *map(str, counts)] for name, counts in rows)]


def evaluate(classifier: Classifier, X: Any, y: Any) -> Evaluation:
    """Compare predictions for X with the labels y.

    >>> from sklearn.datasets import load_iris
    >>> import lysep
    >>> X, y = load_iris(return_X_y=True)
    >>> print(evaluate(lysep.LySepClassifier(max_iter=2, random_state=0).fit(X, y), X, y).classes)
    ['0', '1', '2']
    """
    classes = classifier.classes_
    found, codes = np.unique(labels.checked(y), return_inverse=True)
    true = labels.places(found, classes)[codes]
    log_probabilities = _log_probabilities(classifier.decision_function(X))
    if len(log_probabilities) != len(true):
        raise ValueError(f"there are {len(log_probabilities)} samples, but {len(true)} labels.")
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (true, log_probabilities.argmax(1)), 1)
    cross_entropy = -float(log_probabilities[np.arange(len(true)), true].mean())
    return Evaluation([str(name) for name in classes.tolist()], confusion, cross_entropy)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _log_probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """From the logits, or from the difference of two: finite where a probability is too small for a number."""
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    logits = logits - logits.max(1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
