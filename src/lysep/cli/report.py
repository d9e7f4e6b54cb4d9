"""`lysep report`: one page from a folder of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from lysep.studies.runs import Store


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "report",
        help="draw tables and figures from runs",
        description="Draw one self-contained page of all tables and figures, and each as Markdown, PNG and SVG.",
    )
    command.add_argument("runs", nargs="?", default="runs", help="the folder of runs (default: runs)")
    command.add_argument("-o", "--out", type=Path, default=Path("report"), help="where to write (default: report)")
    command.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from lysep.studies.report import write_report  # here, because not every machine that runs has what drawing needs

    print(f"Written: {write_report(Store(arguments.runs), arguments.out)}")
