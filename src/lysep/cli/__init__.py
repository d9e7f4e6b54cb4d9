"""The command line: arguments in, calls out; no logic."""

from lysep.cli.main import main

__all__ = ["main"]
