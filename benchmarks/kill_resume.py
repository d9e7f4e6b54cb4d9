"""Kill a run with SIGKILL at random moments, continue it, and compare it with one that was never interrupted.

    python benchmarks/kill_resume.py --kills 30 --out benchmarks/results/kill_resume.md

Checkpoints are written after every sweep, and every second kill waits for the writing. After every kill the file must
be readable, and its history that of the uninterrupted run, bit for bit; at the end so must the parameters.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lysep
from lysep import machine
from lysep.checkpoint import FILE, append_columns, read
from lysep.history import History
from lysep.methods import Memory, SweepLog
from lysep.objective import Iterate


@dataclass(frozen=True)
class Pushed(lysep.Paper):
    """The paper's sweep after an extrapolation of the head, with what that needs in its memory."""

    push: float = 0.1

    def begin(self, iterate: Iterate) -> tuple[Iterate, Memory]:
        return iterate, {"last": iterate.weights[-1].T.contiguous().T, "length": self.push, "kept": 0}

    def sweep(self, iterate: Iterate, memory: Memory) -> tuple[Iterate, Memory, SweepLog]:
        head, last, length = iterate.weights[-1], memory["last"], float(memory["length"])
        tried = iterate.with_parameters(len(iterate.weights) - 1, head + length * (head - last), iterate.biases[-1])
        kept = tried.objective <= iterate.objective
        new, _, log = super().sweep(tried if kept else iterate, {})
        length = length * 1.1 if kept else length * 0.5
        return new, {"last": head.T.contiguous().T, "length": length, "kept": int(memory["kept"]) + kept}, log


@dataclass(frozen=True)
class Case:
    """A run: its model and data, made anew at every call, and its options."""

    name: str
    model: Callable[[], nn.Sequential]
    data: tuple[Tensor, Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    callbacks: Callable[[Path], list[Any]] = lambda directory: []

    def run(self, directory: Path, sweeps: int, **more: Any) -> lysep.FitResult:
        callbacks = self.callbacks(directory)
        return lysep.fit(self.model(), *self.data, sweeps=sweeps, callbacks=callbacks, **self.options, **more)


def dense(depth: int, width: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(1)
    hidden = [m for _ in range(depth - 2) for m in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), *hidden, nn.Linear(width, 2)).to(dtype)


def convolutional() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(3, 2, 3), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(2 * 2 * 2, 6), nn.Tanh(), nn.Linear(6, 3)),
    ).double()


def disk(samples: int, seed: int = 3) -> tuple[Tensor, Tensor]:
    X = torch.rand(samples, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1
    return X, (X.norm(dim=1) < 0.8).long()


def images(samples: int) -> tuple[Tensor, Tensor]:
    X = torch.randn(samples, 1, 8, 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return X, X.flatten(1)[:, :3].argmax(1)


def cases(samples: int) -> list[Case]:
    X, y = disk(samples)
    weights = torch.rand(samples, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    batches = {"batch_size": samples // 3, "refresh_every": 4}
    few, held_out = {"batch_size": samples // 6, "refresh_every": 3}, {"validation": disk(100, seed=6)}
    paper, fast, halves = {"method": "paper"}, {"method": "fast"}, {"sample_weight": weights[: samples // 2]}
    return [
        Case("dense, depth 10", lambda: dense(10, 10), (X, y), paper),
        Case("dense, float32", lambda: dense(4, 10, torch.float32), (X.float(), y), paper),
        Case("dense, Lipschitz steps", lambda: dense(3, 10), (X, y), {"method": lysep.Paper(step="lipschitz")}),
        Case("convolutional, mini-batches", convolutional, images(samples // 2), paper | few),
        Case(
            "dense, mini-batches, weights, early stopping, CSV log",
            lambda: dense(4, 10),
            (X, y),
            {"sample_weight": weights, **paper, **batches, **held_out},
            lambda directory: [lysep.EarlyStopping(patience=10**6), lysep.CSVLog(directory / "log.csv")],
        ),
        Case("dense, depth 10, fast", lambda: dense(10, 10), (X, y), fast),
        Case("convolutional, mini-batches, weights, fast", convolutional, images(samples // 2), fast | few | halves),
        Case("dense, a method with memory", lambda: dense(4, 10), (X, y), {"method": Pushed()}),
    ]


@dataclass
class Outcome:
    kills: int = 0
    while_writing: int = 0
    before_the_first: int = 0
    sweeps_at_kill: list[int] = field(default_factory=list)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def columns(history: History, rows: int) -> dict[str, list[bytes]]:
    """What has to be equal: everything but the clock."""
    return {name: [bits(v) for v in history[name][:rows]] for name in history if name != "seconds"}


def child(case: Case, directory: Path, sweeps: int) -> int:
    """Continue the run in a process of its own, that may be killed; forked, since importing takes seconds."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            case.run(directory, sweeps, checkpoint=directory / "run", checkpoint_every=0.0)
            status = 0
        finally:
            os._exit(status)
    return pid


def completed(pid: int) -> bool:
    """Whether a process has come to its end by itself; otherwise it was killed."""
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFEXITED(status)


def wait_for_writing(run: Path, at_most: float = 1.0) -> None:
    """Until a file is being written; it takes milliseconds, and moments chosen at random would seldom meet them."""
    until = time.perf_counter() + at_most
    while time.perf_counter() < until and not any(run.glob(f".{FILE}.*")):
        pass


def check_file(case: Case, directory: Path, reference: lysep.FitResult, outcome: Outcome) -> None:
    """The file is whole, and what it holds is the beginning of the uninterrupted run."""
    run = directory / "run"
    outcome.while_writing += any(run.glob(f".{FILE}.*"))
    if not (run / FILE).exists():
        outcome.before_the_first += 1
        return
    history = History(list(reference.history))
    append_columns(history, read(run / FILE, torch.device("cpu"))[1]["history"])
    outcome.sweeps_at_kill.append(len(history))
    assert columns(history, len(history)) == columns(reference.history, len(history)), case.name


def compare(case: Case, directory: Path, reference: lysep.FitResult, sweeps: int) -> None:
    """The continued run against the uninterrupted one; it is complete, so this only reads what it left."""
    result = case.run(directory, sweeps, checkpoint=directory / "run")
    assert result.status is reference.status, case.name
    assert result.kept_sweep == reference.kept_sweep, case.name
    assert columns(result.history, sweeps) == columns(reference.history, sweeps), case.name
    for ours, theirs in zip(result.model.parameters(), reference.model.parameters(), strict=True):
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8)), case.name


def kill_and_resume(case: Case, sweeps: int, kills: int, seed: int) -> Outcome:
    """Kill so many times, at random moments, runs that are continued until they come to their end."""
    with tempfile.TemporaryDirectory() as name:
        started = time.perf_counter()
        reference = case.run(Path(name), sweeps)
        duration = time.perf_counter() - started
    chance, outcome = random.Random(seed), Outcome()
    while outcome.kills < kills:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            while True:
                pid = child(case, directory, sweeps)
                if outcome.kills < kills:
                    time.sleep(chance.uniform(0.0, duration))
                    if outcome.kills % 2:
                        wait_for_writing(directory / "run")
                    os.kill(pid, signal.SIGKILL)
                if completed(pid):
                    break
                outcome.kills += 1
                check_file(case, directory, reference, outcome)
            compare(case, directory, reference, sweeps)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="in all, shared between the kinds of run")
    parser.add_argument("--sweeps", type=int, default=150)
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    chosen = cases(arguments.samples)
    for place, case in enumerate(chosen):
        kills = arguments.kills // len(chosen) + (place < arguments.kills % len(chosen))
        outcome = kill_and_resume(case, arguments.sweeps, kills, arguments.seed + place)
        at = ", ".join(map(str, outcome.sweeps_at_kill))
        rows.append(f"| {case.name} | {outcome.kills} | {outcome.while_writing} | {outcome.before_the_first} | {at} |")
        print(rows[-1], flush=True)
    if arguments.out is not None:
        arguments.out.write_text(report(rows, arguments))


def report(rows: list[str], arguments: argparse.Namespace) -> str:
    return f"""# Runs that were killed and continued

`python benchmarks/kill_resume.py --kills {arguments.kills} --sweeps {arguments.sweeps} \
--samples {arguments.samples} --seed {arguments.seed}`, {machine.sentence()}

{arguments.sweeps} sweeps each, a checkpoint after every sweep, SIGKILL at random moments (every second one waits for
the writing of a checkpoint), continued until the end. After every kill the checkpoint was readable and its history that
of a run which was never interrupted, bit for bit; so were history and parameters at the end.

| run | kills | of them while writing | before the first checkpoint | sweeps in the checkpoint at each kill |
|---|---|---|---|---|
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    main()
