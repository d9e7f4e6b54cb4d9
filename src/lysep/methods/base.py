"""What the training loop needs of a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lysep.objective import Iterate


@dataclass
class SweepLog:
    """What one sweep did. An update is rejected when it would have raised the objective."""

    rejected_updates: int = 0
    line_search_evaluations: int = 0
    skipped_updates: int = 0


class Method(Protocol):
    def sweep(self, iterate: Iterate) -> tuple[Iterate, SweepLog]:
        """One pass over all blocks. The objective of the result is never above that of the argument.

        A method that finds nothing to gain returns its argument, the same object: the run has then stalled.
        """
        ...
