"""Data as people have it (tensors, arrays, indexable datasets) to checked tensors of the model's kind."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lysep.fingerprint import digest
from lysep.network import Network

_LOOKED_AT = 10  # samples, from the first to the last: enough to tell one dataset from another, if not one bit in it
_CHECKED_AT_ONCE = 2**20  # numbers; so that a check of all the data needs little memory beside them


class NonFiniteError(ValueError):
    """Features are NaN or infinite."""


class Batch(NamedTuple):
    """Samples as the network takes them; `sample_weight` in float64, None where every sample counts once."""

    X: Tensor
    y: Tensor
    sample_weight: Tensor | None = None

    def clone(self) -> Batch:
        return Batch(*(None if values is None else values.clone() for values in self))  # type: ignore[arg-type]  # weights may be None


class Source:
    """Indexable samples with labels. Only the samples that are asked for are ever converted and held.

    `X` is a tensor, an array, a list, or anything with `len` and integer indexing; `y` may be left out where the items
    of X are (features, label) pairs, as those of a torch Dataset. Samples of weight zero are left out.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        if hasattr(X, "to_numpy"):  # a data frame
            X = X.to_numpy()
        _refuse_containers(X)
        self._pairs = y is None
        lists = () if self._pairs else (list, tuple)  # without y, a list is one of pairs
        self._whole = isinstance(X, (Tensor, np.ndarray, *lists)) or not _is_indexable(X)
        if self._whole:
            if self._pairs:
                raise ValueError("y is missing. Pass the labels: integers 0 … classes−1, one a sample.")
            X = as_tensor(X, "X")
            if X.dim() < 2:
                raise ValueError(
                    f"X has shape {tuple(X.shape)}; it needs one row a sample, such as (samples, features) or "
                    "(samples, channels, height, width)."
                )
        self.X = X
        self.y = None if self._pairs else _label_tensor(y)
        if len(X) == 0:
            raise ValueError("X is empty; there is nothing to train on.")
        if self.y is not None and len(self.y) != len(X):
            raise ValueError(f"X has {len(X)} samples, but y has {len(self.y)} labels.")
        self._sample_weight = None if sample_weight is None else _weight_tensor(sample_weight, len(X))
        self._kept: Tensor | None = None
        if self._sample_weight is not None and not bool(self._sample_weight.all()):
            self._kept = self._sample_weight.nonzero().squeeze(1)

    def __len__(self) -> int:
        return len(self.X) if self._kept is None else len(self._kept)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.X.shape[1:]) if self._whole else tuple(self._sample(0)[0].shape)

    def check(self, network: Network) -> None:
        """All that can be checked without loading a sample: labels, and features that are in memory already."""
        if self.y is not None:
            _check_range(self.y, network)
            check_classes(_chosen(self.y, self._kept))
        if self._whole:
            _check_finite(self.X, None, network.dtype)

    def fingerprint(self) -> dict[str, str]:
        """What tells these data from others: all that is in memory, and a few samples of a dataset that loads them."""
        looked_at = [self.X] if self._whole else self._looked_at()
        found = {"X": f"{len(self.X)} samples of shape {self.sample_shape} (digest {digest(looked_at)})"}
        for name, values in (("y", self.y), ("sample_weight", self._sample_weight)):
            found[name] = "none" if values is None else f"{len(values)} numbers (digest {digest([values])})"
        return found

    def _looked_at(self) -> Iterator[Tensor]:
        for place in range(_LOOKED_AT):
            features, label = self._sample(place * (len(self.X) - 1) // (_LOOKED_AT - 1))
            yield features
            if label is not None:
                yield label

    def batch(self, indices: Tensor | None, network: Network) -> Batch:
        """The samples of the given indices (all for None) in the network's dtype, on its device."""
        if self._kept is not None:
            indices = self._kept if indices is None else self._kept[indices]
        y = None if self.y is None else _chosen(self.y, indices)
        if self._whole:
            X = _chosen(self.X, indices)
        else:
            X, paired = self._load(range(len(self.X)) if indices is None else indices.tolist())
            y = paired if y is None else y
        if tuple(X.shape[1:]) != network.in_shape:
            raise ValueError(f"samples have shape {tuple(X.shape[1:])}, but the model takes {network.in_shape}.")
        _check_finite(X, indices, network.dtype)
        assert y is not None  # given, or from pairs
        _check_range(y, network)
        weights = None if self._sample_weight is None else _chosen(self._sample_weight, indices).to(network.device)
        return Batch(X.to(network.device, network.dtype), y.to(network.device), weights)

    def _load(self, indices: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        samples, labels = zip(*(self._sample(i) for i in indices), strict=True)
        return _stack(samples, indices, "X"), _label_tensor(_stack(labels, indices, "y")) if self._pairs else None

    def _sample(self, index: int) -> tuple[Tensor, Any]:
        """Features and, of a pair, the label."""
        item, label = self.X[index], None
        if self._pairs:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise ValueError(
                    f"y is missing and X[{index}] is a {type(item).__name__}, not a (features, label) pair. "
                    "Pass y (integers 0 … classes−1, one a sample), or a dataset of pairs."
                )
            item, label = item[0], as_tensor(item[1], "y")
        elif isinstance(item, tuple) and len(item) == 2 and np.ndim(item[0]) != np.ndim(item[1]):
            raise ValueError(f"X[{index}] is a (features, label) pair, but y is given too. Leave y out.")
        return as_tensor(item, f"X[{index}]"), label


def _refuse_containers(X: Any) -> None:
    """What has a length and items, but not those of samples."""
    if X is None:
        raise ValueError("X is missing. Pass the samples, one a row.")
    if hasattr(X, "toarray"):
        raise ValueError(f"X is sparse ({type(X).__name__}). Pass a dense one: X.toarray().")
    if isinstance(X, Mapping | str):
        raise ValueError(f"X is a {type(X).__name__}, not an array of numbers or a dataset.")
    if isinstance(X, DataLoader):
        raise ValueError("X is a DataLoader; lysep draws its own batches. Pass loader.dataset.")


def check_classes(y: Tensor) -> None:
    """Two classes at least, or there is nothing to tell apart."""
    if int(y.min()) == int(y.max()):
        raise ValueError(f"y holds one class only ({int(y[0])}); a classifier needs at least two.")


def _is_indexable(X: Any) -> bool:
    return hasattr(X, "__len__") and hasattr(X, "__getitem__")


def _chosen(values: Tensor, indices: Tensor | None) -> Tensor:
    return values if indices is None else values[indices.to(values.device)]


def _stack(items: Sequence[Tensor], indices: Sequence[int], name: str) -> Tensor:
    for i, item in zip(indices, items, strict=True):
        if item.shape != items[0].shape:
            first = f"{name}[{indices[0]}] has shape {tuple(items[0].shape)}"
            raise ValueError(f"{name}[{i}] has shape {tuple(item.shape)}, but {first}.")
    return torch.stack(tuple(items))


def as_tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, list | tuple) and any(isinstance(value, Tensor) for value in values):
        values = [as_tensor(value, name).cpu().numpy() for value in values]
    if np.ma.is_masked(values):
        raise ValueError(f"{name} is a masked array with masked entries. Drop or impute those samples.")
    if not isinstance(values, Tensor):
        try:
            array = np.ascontiguousarray(values)  # no negative strides; a scalar becomes one entry
            array = array.astype(array.dtype.newbyteorder("="), copy=False).reshape(np.shape(values))
            with warnings.catch_warnings():  # that a read-only array must not be written to: it never is
                warnings.simplefilter("ignore", UserWarning)
                values = torch.as_tensor(array)
        except (TypeError, ValueError) as error:
            hint = " For names as labels: classes, y = np.unique(y, return_inverse=True)." if name == "y" else ""
            raise ValueError(f"{name} is not an array of numbers: {error}.{hint}") from error
    tensor: Tensor = values.detach()
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} is sparse ({tensor.layout}). Pass a dense one: {name}.to_dense().")
    if tensor.is_complex():
        raise ValueError(f"{name} is complex ({tensor.dtype}); it must hold real numbers.")
    return tensor


def _label_tensor(y: Any) -> Tensor:
    labels = as_tensor(y, "y")
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


def _weight_tensor(sample_weight: Any, samples: int) -> Tensor:
    weights = as_tensor(sample_weight, "sample_weight").cpu().double()
    check_weights(weights, samples)
    return weights


def check_weights(weights: Tensor, samples: int) -> None:
    if tuple(weights.shape) != (samples,):
        raise ValueError(
            f"sample_weight has shape {tuple(weights.shape)}; it needs one number a sample, shape ({samples},)."
        )
    bad = ~(torch.isfinite(weights) & (weights >= 0.0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise ValueError(f"sample_weight[{first}] is {float(weights[first])}; weights must be finite and not negative.")
    if not bool(weights.any()):
        raise ValueError("sample_weight is zero for every sample; there is nothing to train on.")


def _check_range(y: Tensor, network: Network) -> None:
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= network.classes:
        raise ValueError(
            f"y holds label {low if low < 0 else high}, but the model's head has {network.classes} outputs: "
            f"labels must be 0 … {network.classes - 1}."
        )


def _check_finite(X: Tensor, indices: Tensor | None, dtype: torch.dtype) -> None:
    """Refuse what is not finite in the model's dtype; `indices` say which samples X are, for the message."""
    if not X.is_floating_point():
        return
    count, first = 0, None
    step = max(1, _CHECKED_AT_ONCE // max(1, X[0].numel()))
    for start in range(0, len(X), step):
        bad = ~torch.isfinite(X[start : start + step].to(dtype))
        if bool(bad.any()):
            count += int(bad.sum())
            place = bad.nonzero()[0]
            place[0] += start
            first = place if first is None else first
    if first is not None:
        value = float(X[tuple(first)])
        sample = int(first[0]) if indices is None else int(indices[int(first[0])])
        where = f"sample {sample}, and {count} such values in all"
        if np.isfinite(value):
            raise NonFiniteError(
                f"X holds {value:g} ({where}), too large for {dtype}. Scale it, or use model.double()."
            )
        raise NonFiniteError(f"X holds {value} ({where}). Features must be finite: drop or impute those samples.")
