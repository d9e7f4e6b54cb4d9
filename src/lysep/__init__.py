"""Train deep softmax classifiers by layer separation."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from lysep.callbacks import CSVLog, EarlyStopping, Progress, TensorBoardLog
from lysep.checkpoint import CheckpointError
from lysep.history import History
from lysep.methods import Fast, Method, Paper
from lysep.network import ModelError
from lysep.objective import SeparatedLoss, separated_loss
from lysep.state import State, separate, write_back
from lysep.training import FitResult, Status, fit, sweep

if TYPE_CHECKING:
    from lysep.estimator import LySepClassifier
    from lysep.saving import load, save

try:
    __version__ = version("lysep")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+source"

__all__ = [
    "CSVLog",
    "CheckpointError",
    "EarlyStopping",
    "Fast",
    "FitResult",
    "History",
    "LySepClassifier",
    "Method",
    "ModelError",
    "Paper",
    "Progress",
    "SeparatedLoss",
    "State",
    "Status",
    "TensorBoardLog",
    "fit",
    "load",
    "save",
    "separate",
    "separated_loss",
    "sweep",
    "write_back",
]

# What needs scikit-learn, which takes as long to import as everything else together, is imported when first used.
_LATER = {"LySepClassifier": "lysep.estimator", "load": "lysep.saving", "save": "lysep.saving"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'lysep' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
