"""What the training loop needs of a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from lysep.objective import Iterate

Memory = Mapping[str, Tensor | float]
"""What a method carries from one sweep to the next, by name. Plain tensors and numbers, so that a run can be saved,
and never changed in place."""


@dataclass
class SweepLog:
    """What one sweep did. An update is rejected when it would have raised the objective."""

    rejected_updates: int = 0
    line_search_evaluations: int = 0
    skipped_updates: int = 0


class Method(ABC):
    """A way to turn an iterate into the next one: `begin` once, then `sweep` again and again."""

    def begin(self, iterate: Iterate) -> tuple[Iterate, Memory]:
        """Where to start from, given where the model is, and what to remember. Nothing, unless a method says so."""
        return iterate, {}

    @abstractmethod
    def sweep(self, iterate: Iterate, memory: Memory) -> tuple[Iterate, Memory, SweepLog]:
        """One pass over all blocks. The objective of the result is never above that of the argument.

        A method that finds nothing to gain returns its argument, the same object: the run has then stalled.
        """

    def objective(self, iterate: Iterate) -> float:
        """What never rises from sweep to sweep: S, unless a method lowers something else."""
        return iterate.objective
