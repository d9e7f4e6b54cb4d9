"""`lysep bench`: layer separation against PyTorch's optimizers, on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

_ALL = ("ladder", "held-out", "cost")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench",
        help="compare with PyTorch's optimizers, in seconds on this machine",
        description="Compare layer separation with PyTorch's optimizers on this machine: tables and pictures. What is "
        "done already is not done again, so a comparison may be interrupted and continued.",
    )
    bench.add_argument(
        "what",
        choices=[*_ALL, "all"],
        help="ladder: seconds to a training loss, by depth; held-out: accuracy against seconds; cost: of a sweep",
    )
    bench.add_argument(
        "--data", type=Path, metavar="FILE.npz", help="your own problem: arrays X, y (and X_test, y_test)"
    )
    bench.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="problems with TEXT in the title, such as '(20,'"
    )
    bench.add_argument("--seeds", type=_positive(int), help="how many seeds to report (default: 3 to 10, by problem)")
    bench.add_argument("--budget", type=_positive(float), metavar="SECONDS", help="for each run (default: by problem)")
    bench.add_argument("--quick", action="store_true", help="a rehearsal of a minute: figures mean nothing")
    bench.add_argument(
        "--jobs", type=_positive(int), default=1, help="runs at a time; more than cores that are free spoil the times"
    )
    bench.add_argument(
        "--runs", type=Path, metavar="DIR", help="where runs are kept (default: runs in the output folder)"
    )
    bench.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where tables and pictures go")
    bench.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> None:
    from lysep.studies.bench.report import Options, bench

    names = (
        [name for name in _ALL if name != "cost" or arguments.data is None]
        if arguments.what == "all"
        else [arguments.what]
    )
    options = Options(
        arguments.out,
        arguments.runs or arguments.out / "runs",
        arguments.data,
        arguments.only,
        arguments.seeds,
        arguments.budget,
        arguments.quick,
        arguments.jobs,
    )
    for path in bench(names, options, lambda line: print(line, flush=True)):
        print(path)


def _positive(kind: type[int] | type[float]) -> Callable[[str], int | float]:
    def positive(text: str) -> int | float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return value

    return positive
