"""What batches of new samples have in common: running means of the sums that the separated problems are made of."""

from __future__ import annotations

from torch import Tensor

from lysep.methods.base import Memory

# Over how many batches. The curvature changes slowly; a gradient is soon out of date.
GAINS, GRAM, MOMENT = "gains", "gram", "moment"
_LAST = {GAINS: 20.0, GRAM: 20.0, MOMENT: 5.0}
_BATCHES = "batches"


def averages_in(memory: Memory) -> Memory:
    """What is kept of them while samples stay what they are. Of the first batch its number: it may be all there is."""
    kept = (_BATCHES, *_LAST) if float(memory.get(_BATCHES, 0.0)) > 1.0 else (_BATCHES,)
    return {key: value for key, value in memory.items() if key.partition(".")[0] in kept}


class Averages:
    """Means over all batches at first, then over about the last ones. Without a memory, the first batch's own sums."""

    def __init__(self, memory: Memory) -> None:
        self._before = memory
        self._batches = float(memory.get(_BATCHES, 0.0)) + 1.0
        self._means: dict[str, Tensor] = {}

    def mean(self, name: str, layer: int, fresh: Tensor) -> Tensor:
        """Of what this batch brings, and those before it have brought."""
        key = f"{name}.{layer}"
        before = self._before.get(key)
        share = 1.0 / min(self._batches, _LAST[name])
        self._means[key] = before.lerp(fresh, share) if isinstance(before, Tensor) else fresh
        return self._means[key]

    def memory(self) -> Memory:
        """Copies, which outlive the inference mode that the means may have been made in."""
        return {_BATCHES: self._batches, **{key: mean.clone() for key, mean in self._means.items()}}
