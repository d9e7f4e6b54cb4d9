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


def gains(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """ρ_n = sqrt(r_n), so that Σ ρ_n² is the cross-entropy, and ρ_n ∂ρ_n/∂z_n = (p(z_n) − α_n) / 2.

    Where a sample is fitted so well that r_n is lost in the rounding of ln p, the sum of the other probabilities is
    taken for it: r_n ≥ 1 − p, and it has all its digits.
    """
    label = labels[:, None]
    slopes = log_probs.exp().scatter(1, label, 0.0)
    others = slopes.sum(1)
    slopes = slopes.scatter_(1, label, -others[:, None])
    least = torch.finfo(log_probs.dtype).tiny
    rho = torch.maximum(residuals(log_probs, labels), others).clamp_(min=least).sqrt_()
    return rho, slopes.mul_(0.5)
