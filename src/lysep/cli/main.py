"""`lysep`: one parser, one place where errors become a line and an exit code.

A command is a function of the parsed arguments that returns nothing and raises ValueError, OSError or ImportError with
a message for people. Its module has `add(commands)`, which declares its arguments; the modules are listed below.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TextIO

from lysep import __version__
from lysep.cli import bench, data, models, report, reproduce, train

_GROUPS: tuple[ModuleType, ...] = (train, models, data, reproduce, report, bench)

EXIT_FAILED = 1  # argparse exits with 2 on bad usage by itself
EXIT_INTERRUPTED = 130  # as shells have it: 128 + SIGINT


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lysep", description="Train deep softmax classifiers by layer separation.")
    top.add_argument("--version", action="version", version=f"lysep {__version__}")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in _GROUPS:
        group.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the return value is the exit code."""
    given = sys.argv[1:] if argv is None else argv
    for argument in given:
        if argument.startswith("--") and argument.endswith("=--"):  # argparse would make an empty list of it
            parser().error(f"argument {argument[:-3]}: '--' is no value")
    arguments = parser().parse_args(given)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show
            arguments.run(arguments)
    except KeyboardInterrupt:
        print("lysep: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its end
        return EXIT_FAILED
    except Exception as error:
        if arguments.debug:
            raise
        print(f"lysep: error: {_one_line(error)}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as people want it: what, not where."""
    print(f"lysep: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | OSError | ImportError) and text:
        return text
    return f"{type(error).__name__}: {text} (a defect of lysep; --debug shows where)"
