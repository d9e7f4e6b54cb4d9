"""Training and test data of one problem."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Split(NamedTuple):
    X_train: Tensor
    y_train: Tensor
    X_test: Tensor
    y_test: Tensor
