"""The least that a step has to do, counted from the network's shapes, and how fast this machine does such things.

Fully connected tanh networks. A multiplication with an addition counts as two operations; a Gram matrix in full, since
that is how a matrix product computes it. Bytes are those of reading and writing, once per operation, what has a row a
sample; parameters are small beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

_ROUNDS, _SECONDS = 5, 0.05


@dataclass(frozen=True)
class Work:
    operations: float
    tanhs: float
    bytes: float


@dataclass(frozen=True)
class Rates:
    """A second of this machine: operations in matrix products of the network's shape, tanhs, bytes copied."""

    operations: float
    tanhs: float
    bytes: float

    def seconds(self, work: Work) -> float:
        """Computing, one thing after the other."""
        return work.operations / self.operations + work.tanhs / self.tanhs

    def seconds_of_memory(self, work: Work) -> float:
        """Reading and writing alone."""
        return work.bytes / self.bytes


def adam_step(sizes: Sequence[int], samples: int, itemsize: int) -> Work:
    """Forward, and backward with the gradients of weights and, above the first layer, of features."""
    maps = list(pairwise(sizes))
    hidden = sum(sizes[1:-1])
    products = 2 * sum(i * o for i, o in maps) + sum(i * o for i, o in maps[1:])
    moved = 2 * sum(i + o for i, o in maps) + sum(i + o for i, o in maps[1:]) + (2 + 3) * hidden
    return Work(2.0 * samples * products, float(samples * hidden), float(itemsize * samples * moved))


def local_gain_sweep(sizes: Sequence[int], samples: int, itemsize: int) -> Work:
    """A sweep of separation by local gain: a reverse pass for the gains, for every layer their product with its
    features and a 1, and a forward pass to see whether the loss fell. Second moments, of some samples, are left out.
    """
    maps = list(pairwise(sizes))
    hidden = sum(sizes[1:-1])
    forward = sum(i * o for i, o in maps)
    reverse = sum(i * o for i, o in maps[1:])
    moments = sum((i + 1) * o for i, o in maps)
    passes = sum(i + o for i, o in maps) + sum(i + o for i, o in maps[1:]) + (2 + 3) * hidden
    moved = passes + sum((i + 1) + o for i, o in maps)
    return Work(
        2.0 * samples * (forward + reverse + moments), float(samples * hidden), float(itemsize * samples * moved)
    )


def rates(width: int, samples: int, dtype: torch.dtype) -> Rates:
    """Measured now, on arrays of the sizes that a step has."""
    features = torch.rand(samples, width, dtype=dtype)
    weight, out = torch.rand(width, width, dtype=dtype), torch.empty(samples, width, dtype=dtype)
    large = torch.rand(2**23, dtype=dtype)
    copied = torch.empty_like(large)
    return Rates(
        2.0 * samples * width * width / _fastest(lambda: torch.mm(features, weight, out=out)),
        samples * width / _fastest(lambda: torch.tanh(features, out=out)),
        2.0 * large.numel() * large.element_size() / _fastest(lambda: copied.copy_(large)),
    )


def _fastest(call: Callable[[], object]) -> float:
    """Processor seconds a call, the best of several rounds: a rate is what the machine can do."""
    call()
    times = []
    for _ in range(_ROUNDS):
        calls, started = 0, time.process_time()
        while time.process_time() - started < _SECONDS:
            call()
            calls += 1
        times.append((time.process_time() - started) / calls)
    return min(times)
