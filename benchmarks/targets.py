"""The circle and digits figures that lysep answers for, over ten seeds.

    python benchmarks/targets.py [--only NAME] [--seeds 10]

Every finished run is a file in benchmarks/results/targets/; a run that is there is not run again, so this may be
stopped at any time. The table in benchmarks/results/targets.md is drawn from those files alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

import torch
from torch import nn

import lysep
from lysep import machine
from lysep.problems import Split, circle, digits, fnn
from lysep.scoring import score

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Target:
    """What is to be shown: the mean over seeds after so many sweeps. None: reported without a target."""

    name: str
    title: str
    sweeps: int
    data: Callable[[int], Split]
    network: Callable[[int], nn.Module]
    cross_entropy: float | None
    accuracy: float | None
    paper: str
    seeds: int = 10


def digits_network(seed: int) -> nn.Module:
    """Two convolutions with four channels each; PyTorch's own start."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64, 50),
            nn.Tanh(),
            nn.Linear(50, 10),
        )


def circle_target(depth: int, sweeps: int, cross_entropy: float, accuracy: float, paper: str) -> Target:
    name = f"circle-{depth}x10"
    return Target(
        name, f"circle ({depth},10)", sweeps, circle, lambda s: fnn(depth, 10, seed=s), cross_entropy, accuracy, paper
    )


TARGETS = [
    circle_target(20, 1000, 3.39e-2, 0.9940, "3.39e-2, 99.40% after 10,000"),
    circle_target(3, 10_000, 1.3e-2, 0.995, "6.75e-3, 99.83% after 10,000"),
    circle_target(10, 10_000, 7.46e-3, 0.9973, "5.56e-3, 99.86% after 10,000"),
    Target(
        "circle-20x10-float32",
        "circle (20,10), float32",
        1000,
        circle,
        lambda s: fnn(20, 10, seed=s, dtype=torch.float32),
        None,
        None,
        "",
    ),
    Target("digits-cnn", "digits, 2 convolutions of 4 channels", 200, digits, digits_network, None, 0.99, "", 3),
]


def run(target: Target, seed: int) -> None:
    path = RESULTS / "targets" / f"{target.name}-{seed}.json"
    if path.exists():
        return
    data, model = target.data(seed), target.network(seed)
    options = {"method": "paper", "sweeps": target.sweeps, "progress": True, "seed": seed}
    result = lysep.fit(model, data.X_train, data.y_train, **options)
    rows = [k for k in (10, 30, 100, 300, 1000, 3000, 10_000) if k <= len(result.history)]
    rows = sorted({*rows, len(result.history)})
    record = {
        "target": target.name,
        "seed": seed,
        "sweeps": target.sweeps,
        "status": result.status.name,
        "machine": machine.describe(),
        "history": [result.history.row(k - 1) for k in rows],
        "rises": sum(b > a for a, b in pairwise(result.history["objective"])),
        "bound_broken": sum(
            c > b for c, b in zip(result.history["cross_entropy"], result.history["bound"], strict=True)
        ),
        "test_accuracy": score(model, data.X_test.to(next(model.parameters()).dtype), data.y_test).accuracy,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    unfinished.replace(path)


def table() -> str:
    lines = [
        '# Figures that `method="paper"` answers for',
        "",
        "Drawn by `make targets` from the run files in `targets/`; one seed draws data and start. Training figures,",
        "mean ± standard deviation over seeds after the last sweep. A rise is a sweep that raised S, a break one whose",
        "cross-entropy lay above the bound.",
        "",
        "| problem | sweeps | seeds | cross-entropy | wanted | accuracy | wanted | test accuracy | paper | rises "
        "| breaks |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    machines = set()
    for target in TARGETS:
        files = sorted((RESULTS / "targets").glob(f"{target.name}-[0-9]*.json"))
        records = [json.loads(file.read_text()) for file in files]
        if not records:
            continue
        machines |= {json.dumps(r["machine"]) for r in records}
        last = [r["history"][-1] for r in records]
        lines.append(
            f"| {target.title} | {target.sweeps:,} | {len(records)} | "
            f"{_spread([r['cross_entropy'] for r in last], 'e')} | "
            f"{'' if target.cross_entropy is None else f'≤ {target.cross_entropy:.2e}'} | "
            f"{_spread([r['accuracy'] for r in last], '%')} | "
            f"{'' if target.accuracy is None else f'≥ {target.accuracy:.2%}'} | "
            f"{_spread([r['test_accuracy'] for r in records], '%')} | {target.paper} | "
            f"{sum(r['rises'] for r in records)} | {sum(r['bound_broken'] for r in records)} |"
        )
    lines += ["", "Machine: " + "; ".join(sorted(machines)), ""]
    return "\n".join(lines)


def _spread(values: list[float], kind: str) -> str:
    digits_ = ".2e" if kind == "e" else ".2%"
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{mean(values):{digits_}} ± {deviation:{digits_}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="the name of one target, such as circle-3x10")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for target in TARGETS:
        for seed in range(min(arguments.seeds, target.seeds)):
            if arguments.only in (None, target.name):
                print(f"{target.title}, seed {seed}")
                run(target, seed)
                (RESULTS / "targets.md").write_text(table())
    print(table())


if __name__ == "__main__":
    main()
