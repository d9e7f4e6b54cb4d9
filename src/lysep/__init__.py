"""Train deep softmax classifiers by layer separation."""

from importlib.metadata import PackageNotFoundError, version

from lysep.history import History
from lysep.methods import Fast, Method, Paper
from lysep.network import ModelError
from lysep.objective import SeparatedLoss, separated_loss
from lysep.state import State, separate, write_back
from lysep.training import FitResult, Progress, Status, fit, sweep

try:
    __version__ = version("lysep")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"

__all__ = [
    "Fast",
    "FitResult",
    "History",
    "Method",
    "ModelError",
    "Paper",
    "Progress",
    "SeparatedLoss",
    "State",
    "Status",
    "fit",
    "separate",
    "separated_loss",
    "sweep",
    "write_back",
]
