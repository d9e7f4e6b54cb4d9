"""Labels of any type as places in the sorted classes, and what samples and classes weigh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from lysep.parameters import NOT_NEGATIVE

Floats = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Samples:
    """Samples (an array, or a data frame still to be encoded), the places of their labels in the classes, weights."""

    X: Any
    y: Places
    weights: Floats | None

    def rows(self, rows: Any) -> Samples:
        X = self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]
        return Samples(X, self.y[rows], None if self.weights is None else self.weights[rows])


def checked(y: Any) -> NDArray[Any]:
    """Labels as an array with one axis, complete and of one type."""
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    try:
        check_classification_targets(y)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in y})
        if len(kinds) > 1:
            raise ValueError(f"y mixes labels that cannot be compared ({', '.join(kinds)}). Use one type.") from error
        raise ValueError(f"y cannot be used as labels: {error}") from error
    return np.asarray(y)


def declared(classes: Any) -> NDArray[Any]:
    if classes is None:
        raise ValueError("classes must be passed on the first call to partial_fit.")
    declared = np.unique(np.asarray(classes))
    if len(declared) < 2:
        raise ValueError(f"classes={classes!r} holds {len(declared)} class; a classifier needs at least two.")
    return declared


def places(found: NDArray[Any], classes: NDArray[Any]) -> Places:
    known = {label: place for place, label in enumerate(classes.tolist())}
    strange = [label for label in found.tolist() if label not in known]
    if strange:
        raise ValueError(f"y holds {strange[:5]}, not among the classes {classes.tolist()[:20]}.")
    return np.array([known[label] for label in found.tolist()], dtype=np.intp)


def class_weights(
    class_weight: str | Mapping[Any, float], classes: NDArray[Any], codes: Places, weights: Floats
) -> Floats:
    """One number a class. Balanced: every class has the same weight in all, and the sum stays what it was."""
    if isinstance(class_weight, str):
        totals = np.bincount(codes, weights, minlength=len(classes))
        return np.asarray(weights.sum() / (len(classes) * np.where(totals > 0.0, totals, 1.0)))
    labels = classes.tolist()
    missing = [label for label in labels if label not in class_weight]
    strange = [key for key in class_weight if key not in labels]
    if missing and strange:  # one of them alone may be meant: a class counts once, or is absent from this fold
        raise ValueError(f"class_weight names {strange[:5]}, but the classes {missing[:5]} have no weight.")
    return np.array([float(class_weight.get(label, 1.0)) for label in labels])


def is_class_weight(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(NOT_NEGATIVE.holds(weight) for weight in value.values())
    return isinstance(value, str) and value == "balanced"
