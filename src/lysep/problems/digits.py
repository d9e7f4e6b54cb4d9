"""Scikit-learn's handwritten digits: 1,797 images of 8 × 8 pixels (UCI Optical Recognition of Handwritten Digits)."""

from __future__ import annotations

import torch

from lysep.problems.split import Split


def digits(seed: int = 0, held_out: float = 0.25) -> Split:
    """Images of shape (1, 8, 8), pixels in [0, 1], split at random."""
    from sklearn.datasets import load_digits  # here, because it takes a second that `import lysep` should not take

    data = load_digits()
    X = torch.as_tensor(data.images, dtype=torch.float64, device="cpu")[:, None] / 16.0
    y = torch.as_tensor(data.target, dtype=torch.long, device="cpu")
    order = torch.randperm(len(y), generator=torch.Generator(device="cpu").manual_seed(seed), device="cpu")
    test = round(held_out * len(y))
    return Split(X[order[test:]], y[order[test:]], X[order[:test]], y[order[:test]])
