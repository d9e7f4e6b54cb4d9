"""What the training loop needs of a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from lysep.data import Batch
from lysep.objective import Evaluated, Iterate
from lysep.state import State, restart

E = TypeVar("E", bound=Evaluated)

Memory = Mapping[str, Tensor | float]
"""What a method carries from one sweep to the next, by name. Plain tensors and numbers, so that a run can be saved,
and never changed in place."""


@dataclass
class SweepLog:
    """What one sweep did. An update is rejected when it would have raised the objective."""

    rejected_updates: int = 0
    line_search_evaluations: int = 0
    skipped_updates: int = 0


class Method(ABC, Generic[E]):
    """A way to turn an iterate into the next one: `begin` once, then `sweep` again and again.

    E is what the method works on: an `Iterate`, with every term of S, unless it says otherwise.
    """

    refresh_every: ClassVar[int] = 200
    """For how many sweeps a mini-batch stays, where nobody says. As in the paper, unless a method says otherwise."""

    def evaluate(self, state: State) -> E:
        iterate: Any = Iterate(state)
        return iterate  # type: ignore[no-any-return]  # E is Iterate here

    def renew(self, iterate: E, batch: Batch) -> E:
        """The same parameters on other samples."""
        return self.evaluate(restart(iterate.state, batch))

    def begin(self, iterate: E) -> tuple[E, Memory]:
        """Where to start from, given where the model is, and what to remember. Nothing, unless a method says so."""
        return iterate, {}

    def remarks(self, given: E, begun: E) -> tuple[str, ...]:
        """What a person should know of what `begin` made of their model."""
        return ()

    @abstractmethod
    def sweep(self, iterate: E, memory: Memory) -> tuple[E, Memory, SweepLog]:
        """One pass over all blocks. The objective of the result is never above that of the argument.

        A method that finds nothing to gain returns its argument, the same object: the run has then stalled.
        """

    def objective(self, iterate: E) -> float:
        """What never rises from sweep to sweep: S, unless a method lowers something else."""
        return iterate.objective
