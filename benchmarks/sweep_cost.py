"""One sweep of method="paper" against one Adam step, on the same network and data in the same run.

    python benchmarks/sweep_cost.py [--write]

The two are timed in turn, thirty of each, round after round: this machine's speed wanders, their ratio much less. A
sweep is counted with everything that `fit` does in it, the scoring of the nested network for the history included.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from pathlib import Path
from statistics import median

import torch
from torch import nn

import lysep
from lysep import machine
from lysep.baselines import minimize_cross_entropy
from lysep.problems import Split, circle, fnn

RESULTS = Path(__file__).parent / "results" / "sweep_cost.md"
ROUNDS, WARM_UP, TIMED = 7, 10, 30

# Where the time of a sweep goes, by the functions that do it: (file, function), innermost work that does not overlap.
PARTS = {
    "auxiliary variables: gradient": ("updates.py", "aux_gradient"),
    "auxiliary variables: trial steps": ("updates.py", "move_aux"),
    "weights: least squares": ("base.py", "solve"),
    "weights and biases: new gaps": ("objective.py", "with_parameters"),
    "head: gradient and curvature": ("updates.py", "head_gradient"),
    "recording: the nested network's loss": ("state.py", "forward"),
}


def seconds_a_row(history: lysep.History) -> float:
    seconds = history["seconds"]
    return (seconds[-1] - seconds[WARM_UP - 1]) / (len(seconds) - WARM_UP)


def compare(data: Split, dtype: torch.dtype) -> tuple[float, float, float]:
    """Seconds of a sweep and of a step, and the median of their ratios, round by round."""
    X, y = data.X_train.to(dtype), data.y_train
    ours, theirs = fnn(20, 10, dtype=dtype), fnn(20, 10, start="xavier", dtype=dtype)
    sweeps, steps = [], []
    for _ in range(ROUNDS):
        sweeps.append(seconds_a_row(lysep.fit(ours, X, y, method="paper", sweeps=WARM_UP + TIMED).history))
        steps.append(seconds_a_row(minimize_cross_entropy(theirs, X, y, "adam", 1e-3, WARM_UP + TIMED)))
    return median(sweeps), median(steps), median(a / b for a, b in zip(sweeps, steps, strict=True))


def where_the_time_goes(data: Split) -> list[tuple[str, float]]:
    """Shares of a sweep's time by part, under the profiler."""
    model: nn.Module = fnn(20, 10)
    profiler = cProfile.Profile()
    lysep.fit(model, data.X_train, data.y_train, method="paper", sweeps=WARM_UP)
    profiler.enable()
    lysep.fit(model, data.X_train, data.y_train, method="paper", sweeps=100)
    profiler.disable()
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = next(v[3] for k, v in stats.items() if k[2] == "sweep_through")
    shares = []
    for part, (file, function) in PARTS.items():
        spent = sum(v[3] for k, v in stats.items() if k[0].endswith(file) and k[2] == function)
        shares.append((part, spent / total))
    return [*shares, ("everything else", 1.0 - sum(share for _, share in shares))]


def report() -> str:
    data = circle()
    lines = [
        "# What one sweep costs",
        "",
        f'Circle network (20,10), {len(data.y_train):,} samples, `method="paper"` against `torch.optim.Adam`,',
        f"full batch; medians of {ROUNDS} rounds of {TIMED} in turn (`make bench`).",
        "",
        "| threads | dtype | sweep, ms | Adam step, ms | ratio |",
        "|---|---|---|---|---|",
    ]
    available = torch.get_num_threads()
    for threads in sorted({1, available}):
        torch.set_num_threads(threads)
        for dtype in (torch.float64, torch.float32):
            sweep, step, ratio = compare(data, dtype)
            name = str(dtype).removeprefix("torch.")
            lines.append(f"| {threads} | {name} | {1e3 * sweep:.1f} | {1e3 * step:.1f} | {ratio:.2f} |")
    torch.set_num_threads(1)
    lines += ["", "Where the time of a sweep goes (one thread, float64, shares under the profiler):", ""]
    lines += ["| part | share |", "|---|---|"]
    lines += [f"| {part} | {share:.0%} |" for part, share in where_the_time_goes(data)]
    return "\n".join([*lines, "", f"Machine: {machine.sentence()}.", f"Measured {time.strftime('%Y-%m-%d')}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"also write {RESULTS.name} under benchmarks/results")
    arguments = parser.parse_args()
    text = report()
    print(text)
    if arguments.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
