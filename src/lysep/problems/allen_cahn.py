"""Interface tracking, the paper's Example 2 (Section 5.1.2): the sign of a solution of the Allen-Cahn equation.

    u_t = Δu + (u − u³) / ε²    on [−1/2, 1/2]², periodic, ε = 0.02,

from two discs of radius 0.19 about (0, ±0.2) that nearly touch. They merge, and what they have become shrinks: by mean
curvature, a circle as R² = R0² − 2t, as long as R is much larger than ε.

Each half of the equation is solved exactly, the diffusion in Fourier space and the reaction pointwise; Strang's
splitting puts them together with an error of second order in the step, and extrapolation from two step lengths makes
that the fourth. In space the error is spectral. As computed here (128 × 128 points, steps of ε²/16 and half of that), a
finer grid and shorter steps change u by 2e-7 at t = 0.015, and the interface, where u has slope 35, by less than 1e-8.

The printed initial value is symmetric about both axes, hence continuous across the border, but its slope jumps there,
by 0.1 where a disc is near. The Fourier series of u(·, 0) converges slowly for that alone. Diffusion removes it at
once, and u is near −1 there, far from changing its sign. Labels at t = 0 are taken from the formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lysep.problems.split import Split

EPSILON = 0.02
TIMES = (0.0, 0.001, 0.004, 0.015)  # the paper's
POINTS = 128  # of the grid, in each direction
STEP = EPSILON**2 / 16

Array = npt.NDArray[np.floating[Any]]
Function = Callable[[Array, Array], Array]


def initial_value(x: Array, y: Array) -> Array:
    """u_0 as printed: near 1 in the two discs, near −1 elsewhere."""
    width = math.sqrt(2.0) * EPSILON
    upper, lower = (np.tanh((np.hypot(x, y - middle) - 0.19) / width) for middle in (0.2, -0.2))
    value: Array = 1.0 - upper - lower
    return value


def grid(points: int = POINTS) -> tuple[Array, Array]:
    """Coordinates x and y of a periodic grid, x along the first axis."""
    axis = np.arange(points) / points - 0.5
    x, y = np.meshgrid(axis, axis, indexing="ij")
    return x, y


def evolve(u: Array, time: float, steps: int, epsilon: float = EPSILON) -> Array:
    """The solution at `time` on the grid of the values u at time 0, by this many steps of Strang's splitting."""
    n = len(u)
    wave_numbers = 2.0 * math.pi * np.fft.fftfreq(n, 1.0 / n)
    squares = wave_numbers[:, None] ** 2 + wave_numbers[None, : n // 2 + 1] ** 2
    step = time / steps
    diffusion = np.exp(-step * squares)

    def react(u: Array, duration: float) -> Array:
        """Solves u_t = (u − u³)/ε² exactly."""
        return u / np.sqrt(u**2 + (1.0 - u**2) * math.exp(-2.0 * duration / epsilon**2))

    u = react(u, step / 2)
    for _ in range(steps - 1):
        u = react(np.fft.irfft2(diffusion * np.fft.rfft2(u), u.shape), step)
    return react(np.fft.irfft2(diffusion * np.fft.rfft2(u), u.shape), step / 2)


def extrapolated(u: Array, time: float, steps: int, epsilon: float = EPSILON) -> Array:
    """Of fourth order in the step: from `evolve` with so many steps and with twice as many."""
    return (4.0 * evolve(u, time, 2 * steps, epsilon) - evolve(u, time, steps, epsilon)) / 3.0


def interpolate(u: Array) -> Function:
    """The trigonometric polynomial through values on a grid, which is as exact as the values; x and y are vectors."""
    n = len(u)
    coefficients = np.fft.fft2(u) / n**2
    frequencies = np.fft.fftfreq(n, 1.0 / n)

    def waves(t: Array) -> npt.NDArray[np.complexfloating[Any]]:
        phases = 2j * math.pi * np.outer(t + 0.5, frequencies)
        return np.exp(phases)

    def function(x: Array, y: Array) -> Array:
        values: Array = ((waves(x) @ coefficients) * waves(y)).sum(1).real
        return values

    return function


@lru_cache(maxsize=8)
def solution(time: float) -> Function:
    """u(·, time) as a function of vectors x and y; solved for once and remembered (t = 0.015: about a second)."""
    if not (math.isfinite(time) and time >= 0.0):
        raise ValueError(f"time={time!r} must be a number that is not negative; the paper's are {TIMES}.")
    if time == 0.0:
        return initial_value
    return interpolate(extrapolated(initial_value(*grid()), time, math.ceil(time / STEP)))


def interface(time: float, seed: int = 0, train: int = 3000, test: int = 1000) -> Split:
    """Points uniform in [−1/2, 1/2]², the same at every time, labelled 1 where u(·, time) ≥ 0, else 0."""
    u = solution(float(time))
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def draw(count: int) -> tuple[Tensor, Tensor]:
        X = torch.rand(count, 2, generator=generator, dtype=torch.float64, device="cpu") - 0.5
        return X, torch.from_numpy(u(*X.numpy().T) >= 0.0).long()

    return Split(*draw(train), *draw(test))
