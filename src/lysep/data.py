"""Data as people have it (tensors, arrays, indexable datasets) to checked tensors of the model's kind."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lysep.network import Network


class Source:
    """Indexable samples with labels. Only the samples that are asked for are ever converted, checked and held.

    `X` is a tensor, an array, or anything with `len` and integer indexing; `y` may be left out where the items of X are
    (features, label) pairs, as those of a torch Dataset.
    """

    def __init__(self, X: Any, y: Any) -> None:
        if hasattr(X, "to_numpy"):  # a data frame
            X = X.to_numpy()
        self._whole = isinstance(X, Tensor | np.ndarray | list | tuple) or not _is_indexable(X)
        self.X = _as_tensor(X, "X") if self._whole else X
        self._pairs = y is None
        if self._pairs and self._whole:
            raise ValueError("y is missing. Pass the labels: integers 0 … classes−1, one a sample.")
        self.y = None if self._pairs else _label_tensor(y)
        if self._whole and self.X.dim() < 2:
            raise ValueError(
                f"X has shape {tuple(self.X.shape)}; it needs one row a sample, such as (samples, features) or "
                "(samples, channels, height, width)."
            )
        if self._whole and self.X.is_complex():
            raise ValueError(f"X is complex ({self.X.dtype}); features must be real numbers.")
        if len(self) == 0:
            raise ValueError("X is empty; there is nothing to train on.")
        if self.y is not None and len(self.y) != len(self):
            raise ValueError(f"X has {len(self)} samples, but y has {len(self.y)} labels.")

    def __len__(self) -> int:
        return len(self.X)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.X.shape[1:]) if self._whole else tuple(_as_tensor(self._sample(0), "X[0]").shape)

    def check_labels(self, network: Network) -> None:
        """All labels at once, where they are known without loading the samples."""
        if self.y is not None:
            _check_labels(self.y, network)

    def check_features(self) -> None:
        """All features at once, where they are in memory already."""
        if self._whole:
            for start in range(0, len(self), 65536):
                _check_finite(self.X[start : start + 65536], start)

    def batch(self, indices: Tensor | None, network: Network) -> tuple[Tensor, Tensor]:
        """The samples of the given indices (all for None) in the network's dtype, on its device."""
        if self._whole:
            X = self.X if indices is None else self.X[indices.to(self.X.device)]
        else:
            chosen = range(len(self)) if indices is None else indices.tolist()
            items = [self.X[i] for i in chosen]
            if self._pairs:
                items, paired = [item[0] for item in items], [item[1] for item in items]
            X = torch.stack([_as_tensor(item, "X[...]") for item in items])
        if tuple(X.shape[1:]) != network.in_shape:
            raise ValueError(f"samples have shape {tuple(X.shape[1:])}, but the first had {network.in_shape}.")
        X = X.to(network.device, network.dtype)
        _check_finite(X, 0)
        if self.y is None:
            y = _label_tensor([label.item() if isinstance(label, Tensor) else label for label in paired])
        else:
            y = self.y if indices is None else self.y[indices.to(self.y.device)]
        _check_range(y, network)
        return X, y.to(network.device)

    def _sample(self, index: int) -> Any:
        item = self.X[index]
        if not self._pairs:
            return item
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(
                f"y is missing and X[{index}] is a {type(item).__name__}, not a (features, label) pair. "
                "Pass y, or a dataset of pairs."
            )
        return item[0]


def _is_indexable(X: Any) -> bool:
    return hasattr(X, "__len__") and hasattr(X, "__getitem__")


def _as_tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        with warnings.catch_warnings():  # that a read-only array must not be written to: it never is
            warnings.simplefilter("ignore", UserWarning)
            tensor = torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from error
    return tensor


def _label_tensor(y: Any) -> Tensor:
    labels = _as_tensor(y, "y")
    if labels.dim() != 1:
        raise ValueError(
            f"y has shape {tuple(labels.shape)}; it needs one integer label a sample, shape (samples,). "
            "For one-hot rows: y.argmax(1); for a column: y.ravel()."
        )
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"y holds {labels.dtype} values; labels must be integers 0 … classes−1. "
            "Convert them: y.long() or y.astype(int)."
        )
    return labels.long()


def _check_labels(y: Tensor, network: Network) -> None:
    _check_range(y, network)
    if int(y.min()) == int(y.max()):
        raise ValueError(f"y holds one class only ({int(y[0])}); a classifier needs at least two.")


def _check_range(y: Tensor, network: Network) -> None:
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= network.classes:
        raise ValueError(
            f"y holds label {low if low < 0 else high}, but the model's head has {network.classes} outputs: labels "
            f"must be 0 … {network.classes - 1}."
        )


def _check_finite(X: Tensor, offset: int) -> None:
    if not X.is_floating_point():
        return
    bad = ~torch.isfinite(X)
    if bool(bad.any()):
        place = bad.nonzero()[0]
        value = float(X[tuple(place)])
        raise NonFiniteError(
            f"X holds {value} (sample {int(place[0]) + offset}, and {int(bad.sum())} such values in all). Features "
            "must be finite: drop or impute those samples."
        )


class NonFiniteError(ValueError):
    """Features are NaN or infinite."""
