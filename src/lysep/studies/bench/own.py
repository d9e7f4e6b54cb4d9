"""A person's own data, put through the same comparisons."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lysep.data import Source
from lysep.problems import Split
from lysep.studies.bench.problems import HELD_OUT, LADDER, Batches, Problem, dense

_HELD_OUT = 0.25  # of the samples, where the file brings no test samples


def on_own_data(path: Path, comparison: str) -> tuple[Problem, ...]:
    """The fully connected networks of "ladder" or "held-out", with the inputs and classes of the data in the file.

    An .npz file with the arrays X and y and, where there are, X_test and y_test. Labels may be any values.
    """
    split = own_split(path, 0)  # looked at before anything runs
    inputs, classes = split.X_train.shape[1], len(np.unique(_arrays(path)["y"]))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    models = LADDER if comparison == "ladder" else [p for p in HELD_OUT if p.name == "digits"]
    return tuple(
        replace(
            p,
            name=path.stem,
            title=f"{path.stem} ({p.network_name[0]},{p.network_name[1]})",
            load=partial(own_split, path),
            network=partial(dense, *p.network_name, inputs, classes),
            gradient=_fitting(split, p.gradient),
            lbfgs=_fitting(split, p.lbfgs),
            separation=_fitting(split, p.separation),
            digest=digest,
        )
        for p in models
    )


def _fitting(split: Split, schedules: Sequence[Batches]) -> tuple[Batches, ...]:
    """The same schedules; batches have at most half the training samples, since settings are chosen on some of them."""
    half = len(split.y_train) // 2
    return tuple(b if b.size is None else b._replace(size=min(b.size, half)) for b in schedules)


def own_split(path: Path, seed: int) -> Split:
    """Samples flattened to rows, every feature with mean 0 and deviation 1 on the training samples."""
    arrays = _arrays(path)
    names, y = np.unique(arrays["y"], return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{path}: y holds one class only ({names[0]!r}); a classifier needs at least two.")
    X, labels = _checked(path, arrays["X"], y, "X")
    if "X_test" in arrays:
        unknown = set(np.unique(arrays["y_test"]).tolist()) - set(names.tolist())
        if unknown:
            raise ValueError(f"{path}: y_test holds {sorted(unknown)[0]!r}, which y does not.")
        X_test, labels_test = _checked(path, arrays["X_test"], np.searchsorted(names, arrays["y_test"]), "X_test")
        if X_test.shape[1] != X.shape[1]:
            raise ValueError(f"{path}: X has {X.shape[1]} features, but X_test has {X_test.shape[1]}.")
    else:
        order = torch.randperm(len(X), generator=torch.Generator(device="cpu").manual_seed(seed), device="cpu")
        test, train = order.tensor_split([round(_HELD_OUT * len(X))])
        X, labels, X_test, labels_test = X[train], labels[train], X[test], labels[test]
    mean, deviation = X.mean(0), X.std(0)
    deviation[deviation == 0.0] = 1.0
    return Split((X - mean) / deviation, labels, (X_test - mean) / deviation, labels_test)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as file:
            arrays = dict(file)
    except (ValueError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise ValueError(f"{path} is not an .npz file of plain arrays ({error}). Write it with np.savez.") from error
    for name, needed in (("X", True), ("y", True), ("y_test", "X_test" in arrays), ("X_test", "y_test" in arrays)):
        if needed and name not in arrays:
            raise ValueError(f"{path} holds {', '.join(arrays) or 'nothing'}, but no {name}: np.savez(path, X=X, y=y).")
    return arrays


def _checked(path: Path, X: np.ndarray, y: np.ndarray, name: str) -> tuple[Tensor, Tensor]:
    try:
        source = Source(X, y)
        rows = torch.as_tensor(X).reshape(len(X), -1).double()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {name}: {error}") from error
    if not bool(torch.isfinite(rows).all()):
        raise ValueError(f"{path}: {name} holds NaN or infinite values. Drop or impute those samples.")
    assert source.y is not None
    return rows, source.y
