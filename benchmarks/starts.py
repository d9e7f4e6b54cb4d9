"""What the start does to layer separation, and which learning rates the demo's gradient methods get.

    python benchmarks/starts.py          (about twenty minutes; writes benchmarks/results/starts.md)

On seeds that no other table reports (100, 101, 102).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean

import torch
from torch import nn

import lysep
from lysep import machine
from lysep.baselines import minimize_cross_entropy
from lysep.problems import circle, fnn

RESULTS = Path(__file__).parent / "results" / "starts.md"
SEEDS = (100, 101, 102)
NETWORKS = ((3, 1000), (10, 300), (20, 200))  # depth, sweeps; width 10


def changed(depth: int, seed: int, change: Callable[[list[nn.Linear]], None]) -> nn.Module:
    """The "separation" start with one thing about it changed."""
    model = fnn(depth, 10, seed=seed)
    with torch.no_grad():
        change([m for m in model if isinstance(m, nn.Linear)])
    return model


def _scale(layers: Iterable[nn.Linear], factor: float) -> None:
    for layer in layers:
        layer.weight.mul_(factor)


def _zero_biases(layers: Iterable[nn.Linear]) -> None:
    for layer in layers:
        layer.bias.zero_()


STARTS: dict[str, Callable[[int, int], nn.Module]] = {
    '"separation"': lambda depth, seed: fnn(depth, 10, seed=seed),
    '"pytorch"': lambda depth, seed: fnn(depth, 10, seed=seed, start="pytorch"),
    '"xavier"': lambda depth, seed: fnn(depth, 10, seed=seed, start="xavier"),
    '"separation", float32': lambda depth, seed: fnn(depth, 10, seed=seed, dtype=torch.float32),
    '"xavier", float32': lambda depth, seed: fnn(depth, 10, seed=seed, start="xavier", dtype=torch.float32),
    "first weights × 6": lambda d, s: changed(d, s, lambda layers: _scale(layers[:1], 6.0)),
    "hidden weights × 0.5": lambda d, s: changed(d, s, lambda layers: _scale(layers[1:-1], 0.5)),
    "hidden weights × 2": lambda d, s: changed(d, s, lambda layers: _scale(layers[1:-1], 2.0)),
    "head × 10": lambda d, s: changed(d, s, lambda layers: _scale(layers[-1:], 10.0)),
    "no biases": lambda d, s: changed(d, s, lambda layers: _zero_biases(layers[:-1])),
}


def compare_starts() -> list[str]:
    columns = [f"({depth},10), {sweeps} sweeps" for depth, sweeps in NETWORKS]
    lines = [f"| start | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for name, make in STARTS.items():
        cells = []
        for depth, sweeps in NETWORKS:
            rows = []
            for seed in SEEDS:
                data = circle(seed)
                result = lysep.fit(make(depth, seed), data.X_train, data.y_train, method="paper", sweeps=sweeps)
                rows.append(result.history.row(-1))
            cells.append(f"{mean(r['cross_entropy'] for r in rows):.1e}, {mean(r['accuracy'] for r in rows):.2%}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def compare_learning_rates() -> list[str]:
    lines = ["| optimizer | start | learning rate | cross-entropy, seed by seed |", "|---|---|---|---|"]
    grids = {
        "gradient descent": ("gd", (0.03, 0.1, 0.3, 1.0)),
        "Adam": ("adam", (1e-3, 3e-3, 1e-2)),
    }
    for name, (optimizer, rates) in grids.items():
        for start in ("pytorch", "xavier"):
            for rate in rates:
                losses = []
                for seed in SEEDS:
                    data, model = circle(seed), fnn(20, 10, seed=seed, start=start)
                    history = minimize_cross_entropy(model, data.X_train, data.y_train, optimizer, rate, 2000)
                    losses.append(mean(history["cross_entropy"][-100:]))
                lines.append(f"| {name} | {start} | {rate:g} | {', '.join(f'{loss:.1e}' for loss in losses)} |")
                print(lines[-1], flush=True)
    return lines


def main() -> None:
    torch.set_num_threads(1)
    text = [
        "# Starts and learning rates",
        "",
        f"Circle problem, 3,000 samples, float64 unless said otherwise, seeds {', '.join(map(str, SEEDS))}.",
        "Drawn by `benchmarks/starts.py`.",
        "",
        "## The start of layer separation",
        "",
        "Means over the seeds of training cross-entropy and accuracy after the last sweep.",
        "",
        *compare_starts(),
        "",
        "## Learning rates of the demo's gradient methods",
        "",
        "Network (20,10), 2,000 full-batch steps; the mean cross-entropy of the last hundred, since it jumps.",
        "",
        *compare_learning_rates(),
        "",
        f"Machine: {machine.sentence()}. Measured {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    RESULTS.write_text("\n".join(text))


if __name__ == "__main__":
    main()
