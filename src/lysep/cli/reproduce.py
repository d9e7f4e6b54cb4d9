"""`lysep reproduce`: run what the paper's tables and figures are made of."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from lysep.studies.paper import FIGURES, METHODS, SEEDS, STAND_INS, SWEEPS, TABLES
from lysep.studies.reproduce import FULL, QUICK, reproduce
from lysep.studies.runs import Store


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "reproduce",
        help="run the paper's experiments",
        description="Run what a table or figure of the paper is made of. May be stopped at any moment; given again, it "
        "continues where it was. The pictures are drawn from the runs by `lysep report`.",
    )
    command.add_argument("name", choices=[*TABLES, *FIGURES, "all"])
    command.add_argument("--seeds", type=int, help=f"how many seeds (default {SEEDS}, as in the paper)")
    command.add_argument("--sweeps", type=int, help=f"how many iterations (default {SWEEPS}, as in the paper)")
    command.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="processes, of one thread each (default: cores)"
    )
    command.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WHAT",
        help=f"a network (3,10), a time slice (t=0.004) or a method ({', '.join(METHODS)}); may be repeated",
    )
    command.add_argument("--runs", default="runs", metavar="DIR", help="where the runs are kept (default: runs)")
    command.add_argument(
        "--data",
        choices=["mnist", *STAND_INS],
        default="mnist",
        help="digits: a stand-in for MNIST that needs no network",
    )
    command.add_argument("--quick", action="store_true", help="a few sweeps and two seeds: minutes, to see it work")
    command.add_argument("--device", default="cpu", help='"cuda": all processes share the GPU (for table3)')
    command.add_argument(
        "--minutes", type=float, help="begin no run that is not expected to end within so many minutes"
    )
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    named = {"sweeps": arguments.sweeps, "seeds": arguments.seeds}
    effort = replace(QUICK if arguments.quick else FULL, **{k: v for k, v in named.items() if v is not None})
    reproduce(
        arguments.name,
        Store(arguments.runs),
        effort,
        only=arguments.only,
        data=arguments.data,
        jobs=arguments.jobs,
        device=arguments.device,
        minutes=arguments.minutes,
    )
    print(f"To draw it: lysep report {arguments.runs} -o report")
