"""Pictures of the problems: every function draws into a Matplotlib Axes that it is given.

Figure 1 of the paper is `draw_samples` and `draw_circle`; Figure 4a is `draw_solution` at the four times; `wrong` marks
what a network got wrong, as in Figures 3 and 4b, 4c. Matplotlib comes with the extra: pip install 'lysep[plot]'.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from lysep.problems.allen_cahn import Array, solution
from lysep.problems.circle import RADIUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_COLORS = ("#c0561c", "#1f5fa8")  # outside, inside; told apart by people who are red-green blind too
_LINE_COLOR = "0.2"
_CELLS = 120  # of a picture, in each direction


def draw_samples(axes: Axes, X: Tensor, y: Tensor, wrong: Tensor | None = None) -> None:
    """Points of the plane in the colour of their label; those that `wrong` says are misclassified as black squares."""
    for label, color in enumerate(LABEL_COLORS):
        chosen = X[y == label]
        axes.scatter(chosen[:, 0], chosen[:, 1], s=3, color=color, linewidths=0)
    if wrong is not None:
        axes.scatter(X[wrong, 0], X[wrong, 1], s=16, marker="s", color="black", linewidths=0)


def draw_circle(axes: Axes) -> None:
    """The true boundary of circle-in/out, on its square."""
    angle = np.linspace(0.0, 2.0 * math.pi, 361)
    axes.plot(RADIUS * np.cos(angle), RADIUS * np.sin(angle), color=_LINE_COLOR, linewidth=1.0)
    axes.set(xlim=(-1, 1), ylim=(-1, 1), xticks=(-1, 0, 1), yticks=(-1, 0, 1), aspect="equal")


def draw_interface(axes: Axes, time: float) -> None:
    """Where u(·, time) is zero: the true boundary of interface tracking, on its square."""
    axis, u = _solution(time)
    axes.contour(axis, axis, u, levels=[0.0], colors=_LINE_COLOR, linewidths=1.0)
    axes.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5), xticks=(-0.5, 0, 0.5), yticks=(-0.5, 0, 0.5), aspect="equal")


def draw_solution(axes: Axes, time: float) -> None:
    """u(·, time) from −1 to 1, and the interface."""
    axis, u = _solution(time)
    axes.pcolormesh(axis, axis, u, vmin=-1.0, vmax=1.0, cmap="PuOr", shading="gouraud", rasterized=True)
    draw_interface(axes, time)
    axes.set_title(f"t = {time:g}")


def _solution(time: float) -> tuple[Array, Array]:
    """Coordinates, and u with a row for every y."""
    axis = np.linspace(-0.5, 0.5, _CELLS + 1)
    x, y = np.meshgrid(axis, axis)
    return axis, solution(time)(x.ravel(), y.ravel()).reshape(x.shape)
