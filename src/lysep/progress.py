"""The progress bar: on a terminal or in a notebook, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tqdm.auto import tqdm

_SHOWN = {"loss": ("cross_entropy", ".3g"), "accuracy": ("accuracy", ".2%"), "bound": ("bound", ".3g")}


class ProgressBar(tqdm):  # type: ignore[type-arg]  # generic in its stubs only
    """Steps done, loss, accuracy, bound and the time left, to the last step or to the time limit."""

    def __init__(
        self, total: int, shown: bool, unit: str = "sweep", done: int = 0, time_limit: float | None = None
    ) -> None:
        self._time_limit = time_limit
        super().__init__(
            total=total,
            initial=done,
            unit=unit,
            disable=None if shown else True,  # None: where stderr is not a terminal
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{left}, {rate_fmt}{postfix}]",
        )

    def show(self, row: Mapping[str, float]) -> None:
        """One step more, of which this is the row of the history."""
        if self.disable:
            return
        numbers = {label: format(row[name], spec) for label, (name, spec) in _SHOWN.items() if name in row}
        self.set_postfix(numbers, refresh=False)
        self.update()

    @property
    def format_dict(self) -> Any:
        known = super().format_dict
        elapsed = known["elapsed"]
        rate = known["rate"] or (elapsed and (known["n"] - known["initial"]) / elapsed)
        left = (known["total"] - known["n"]) / rate if rate else None
        if left is not None and self._time_limit is not None:
            left = max(0.0, min(left, self._time_limit - elapsed))
        known["left"] = "?" if left is None else self.format_interval(left)
        return known
