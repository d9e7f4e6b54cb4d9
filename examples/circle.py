"""Train the circle network (20,10) by layer separation and by gradient methods on cross-entropy, and draw both.

    python examples/circle.py --out demo

Twenty layers of width ten: a network that plain gradient descent does not train from PyTorch's own start. Every method
below gets a start that suits it and, the gradient methods, the best learning rate of a grid; what was tried is in
benchmarks/results/starts.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import nn

import lysep
from lysep.baselines import minimize_cross_entropy
from lysep.history import History
from lysep.problems import Split, circle, fnn
from lysep.problems.pictures import draw_circle, draw_samples
from lysep.scoring import score

DEPTH, WIDTH = 20, 10
FAST_SWEEPS = 15  # the training loss is near zero by then; more only make the network surer of itself


@dataclass
class Trained:
    name: str
    model: nn.Module
    history: History
    color: str


def reports(total: int) -> list[Callable[[Any], None]]:
    """Ten plain lines, where there is no terminal for a progress bar."""

    def report(progress: Any) -> None:
        if progress.sweep * 10 // total > (progress.sweep - 1) * 10 // total:
            loss, accuracy = progress.row["cross_entropy"], progress.row["accuracy"]
            print(f"  {progress.sweep} of {total}: loss {loss:.3g}, accuracy {accuracy:.2f}", flush=True)

    return [] if sys.stderr.isatty() else [report]


def train_all(data: Split, seed: int, sweeps: int, steps: int) -> list[Trained]:
    def say(name: str) -> str:
        print(name, flush=True)
        return name

    trained = []
    for name, color, method, start, count in (
        ("layer separation, PyTorch's start", "C0", "fast", "pytorch", min(sweeps, FAST_SWEEPS)),
        ("layer separation as in the paper", "C4", "paper", "separation", sweeps),
    ):
        say(name)
        model = fnn(DEPTH, WIDTH, start=start, seed=seed)
        told = reports(count)
        result = lysep.fit(
            model, data.X_train, data.y_train, method=method, sweeps=count, callbacks=told, progress=True
        )
        trained.append(Trained(name, model, result.history, color))
    for name, color, optimizer, lr, start in (
        ("gradient descent, PyTorch's start", "C3", "gd", 0.3, "pytorch"),
        ("gradient descent, Xavier start", "C1", "gd", 0.3, "xavier"),
        ("Adam, PyTorch's start", "C2", "adam", 1e-3, "pytorch"),
    ):
        say(name)
        model = fnn(DEPTH, WIDTH, start=start, seed=seed)
        history = minimize_cross_entropy(
            model, data.X_train, data.y_train, optimizer, lr, steps, callbacks=reports(steps), progress=True
        )
        trained.append(Trained(name, model, history, color))
    return trained


def table(trained: list[Trained], data: Split) -> str:
    lines = [
        f"{'':35} {'steps':>6} {'seconds':>8} {'train CE':>9} {'accuracy':>9} {'test CE':>9} {'accuracy':>9}",
    ]
    for t in trained:
        train_loss, train_accuracy = score(t.model, data.X_train, data.y_train)
        test_loss, test_accuracy = score(t.model, data.X_test, data.y_test)
        lines.append(
            f"{t.name:35} {len(t.history):6d} {t.history['seconds'][-1]:8.1f} {train_loss:9.2e} {train_accuracy:9.2%} "
            f"{test_loss:9.2e} {test_accuracy:9.2%}"
        )
    return "\n".join(lines)


def draw_curves(trained: list[Trained]) -> Figure:
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    for t in trained:
        style = {
            "color": t.color,
            "linewidth": 2 if "bound" in t.history else 0.7,
            "zorder": 3 if "bound" in t.history else 2,
        }
        loss.loglog(t.history["sweep"], t.history["cross_entropy"], **style, label=t.name)
        accuracy.semilogx(t.history["sweep"], t.history["accuracy"], **style)
        if "bound" in t.history:
            bound = t.history["bound"]
            loss.loglog(t.history["sweep"], bound, "--", color=t.color, alpha=0.6, label="   its certificate (bound)")
    loss.set(xlabel="sweeps or gradient steps", ylabel="training cross-entropy", ylim=(3e-4, None))
    accuracy.set(xlabel="sweeps or gradient steps", ylabel="training accuracy")
    for axes in (loss, accuracy):
        axes.grid(alpha=0.25, which="major")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def draw_regions(trained: list[Trained], data: Split) -> Figure:
    figure = Figure(figsize=(3.2 * len(trained), 3.7), layout="constrained")
    for axes, t in zip(figure.subplots(1, len(trained)), trained, strict=True):
        draw_region(axes, t.model, data)
        axes.set_title(t.name, fontsize=9)
    figure.supxlabel("decision regions; black squares: misclassified test points; line: the true circle", fontsize=9)
    return figure


@torch.no_grad()
def draw_region(axes: Axes, model: nn.Module, data: Split) -> None:
    line = torch.linspace(-1, 1, 240, dtype=torch.float64)
    x, y = torch.meshgrid(line, line, indexing="xy")
    region = model(torch.stack([x.flatten(), y.flatten()], 1)).argmax(1).reshape(x.shape)
    axes.imshow(
        region, extent=(-1, 1, -1, 1), origin="lower", cmap=ListedColormap(["#f3d9c9", "#cfe0f1"]), vmin=0, vmax=1
    )
    wrong = model(data.X_test).argmax(1) != data.y_test
    draw_samples(axes, data.X_test, data.y_test, wrong)
    draw_circle(axes)
    axes.set_xlabel(f"{int(wrong.sum())} of {len(wrong)} misclassified", fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="where the pictures go")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", type=int, default=400, help="of layer separation as in the paper")
    parser.add_argument("--steps", type=int, default=2000, help="of each gradient method")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the network is narrow: a second thread only waits
    started = time.perf_counter()
    data = circle(arguments.seed)
    trained = train_all(data, arguments.seed, arguments.sweeps, arguments.steps)
    arguments.out.mkdir(parents=True, exist_ok=True)
    draw_curves(trained).savefig(arguments.out / "curves.png", dpi=150)
    draw_regions(trained, data).savefig(arguments.out / "regions.png", dpi=150)
    trained[0].history.to_csv(arguments.out / "history.csv")
    print(f"\n{table(trained, data)}\n")
    names = " and ".join(str(arguments.out / name) for name in ("curves.png", "regions.png"))
    print(f"Pictures in {names}. {time.perf_counter() - started:.0f} s in all.")


if __name__ == "__main__":
    main()
