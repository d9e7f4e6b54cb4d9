"""The head's loss: softmax cross-entropy of the logits, sample by sample.

`log_probabilities` is evaluated once per logits; residuals and errors are read off it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_probabilities(logits: Tensor) -> Tensor:
    """ln softmax, one row a sample. Taken over the leading axis of the transposed logits, where it vectorizes."""
    return torch.log_softmax(logits.T, 0).T


def residuals(log_probs: Tensor, labels: Tensor) -> Tensor:
    """r_n = −α_nᵀ ln softmax(z_n), eq. (2.1): the vector R whose squared norm is the head's term of S."""
    return -log_probs.gather(1, labels[:, None]).squeeze(1)


def errors(log_probs: Tensor, labels: Tensor) -> Tensor:
    """∂r_n/∂z_n = p(z_n) − α_n."""
    p = log_probs.exp()
    return p.scatter_add(1, labels[:, None], p.new_full((1, 1), -1.0).expand(len(labels), 1))
