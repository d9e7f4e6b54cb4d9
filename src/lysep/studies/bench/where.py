"""Where the time of a sweep goes, by kind of work, under PyTorch's profiler."""

from __future__ import annotations

import time
from collections.abc import Mapping

from torch.profiler import ProfilerActivity, profile

from lysep import machine
from lysep.problems import circle
from lysep.studies.bench.cost import NETWORK, SAMPLES, clock_readings, network
from lysep.studies.runs import Outcome, Run, Store

_KINDS = {
    "tanh": ("tanh",),
    "matrix products": ("mm", "bmm", "addmm", "baddbmm", "dot", "mv"),
    "factorizations": ("linalg", "cholesky", "triangular", "qr", "eigh", "svd"),
    "copies": ("copy_", "cat", "fill_", "clone", "index_select"),
}
_POINTWISE, _CALLS = "other arithmetic", "Python and calls"
KINDS = (*_KINDS, _POINTWISE, _CALLS)
_STEPS = 30


def shares(method: str, store: Store) -> Mapping[str, float]:
    """The share of every kind in a run of some sweeps or steps, measured once ever."""
    specification = {"problem": "where", "network": list(NETWORK), "method": method, "steps": _STEPS}
    run = store.get(specification)
    if run is None:
        seconds, wall = _measured(method)
        values = [seconds[kind] / wall for kind in KINDS]
        run = Run(specification, machine.describe(), KINDS, [values], Outcome("ok", "measured", _STEPS, wall))
        store.save(run)
    return dict(zip(KINDS, run.history[0], strict=True))


def _measured(method: str) -> tuple[dict[str, float], float]:
    data = circle(train=SAMPLES, test=1)
    clock_readings(method, network(method, *NETWORK), data.X_train, data.y_train, 3)  # warms up
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        started = time.perf_counter()
        clock_readings(method, network(method, *NETWORK), data.X_train, data.y_train, _STEPS)
        wall = time.perf_counter() - started
    seconds = dict.fromkeys(KINDS, 0.0)
    for event in profiler.key_averages():
        seconds[kind_of(event.key)] += 1e-6 * event.self_cpu_time_total
    seconds[_CALLS] += wall - sum(seconds.values())
    return seconds, wall


def kind_of(name: str) -> str:
    """The kind of work that an operation of PyTorch does; what is none of its operations is a call."""
    if not name.startswith("aten::"):
        return _CALLS
    operation = name.removeprefix("aten::").lstrip("_")
    for kind, words in _KINDS.items():
        if any(operation == word or operation.startswith(f"{word}_") for word in words):
            return kind
    return _POINTWISE
