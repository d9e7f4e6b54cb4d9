"""The samples that a run trains on, now and after every refresh."""

from __future__ import annotations

from typing import Any

import torch

from lysep.data import Batch, Source
from lysep.network import Network


class Batches:
    """All samples, or one random subset after another."""

    def __init__(self, source: Source, network: Network, size: int | None, refresh_every: int, seed: int) -> None:
        self._source, self._network, self._size = source, network, size
        self._refresh_every = refresh_every
        self._generator = torch.Generator(device="cpu").manual_seed(int(seed))
        self._before = self._generator.get_state()
        self.drawn = 0

    def state_dict(self) -> dict[str, Any]:
        """What it takes to draw the present batch again, and those after it."""
        return {"drawn": self.drawn - 1, "generator": self._before}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next batch is then the one that was the present one."""
        self.drawn = state["drawn"]
        self._generator.set_state(state["generator"])

    @property
    def partial(self) -> bool:
        return self._size is not None

    def longest(self, window: int) -> int:
        """A window of so many sweeps, or of as many as one batch has."""
        return window if self._size is None else min(window, self._refresh_every - 1)

    def due(self, sweeps_done: int) -> bool:
        return self._size is not None and sweeps_done > 0 and sweeps_done % self._refresh_every == 0

    def next(self) -> Batch:
        self.drawn += 1
        if self._size is None:
            return self._source.batch(None, self._network)
        self._before = self._generator.get_state()
        order = torch.randperm(len(self._source), generator=self._generator, device="cpu")
        return self._source.batch(order[: self._size], self._network)
