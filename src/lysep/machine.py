"""What a result ran on, to be written beside it."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lysep import __version__


def describe() -> dict[str, str | int]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lysep": __version__,
    }


def load() -> float:
    """How many processes wanted a core in the last minute, on average; NaN where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan


def sentence(description: Mapping[str, Any] | None = None) -> str:
    """Of this machine, or of one described before."""
    d = describe() if description is None else description
    return (
        f"{d['cpu']}, {d['cores']} cores, {d['threads']} thread(s); Python {d['python']}, PyTorch {d['torch']}, "
        f"lysep {d['lysep']}"
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes in one thread: the processor's seconds are then those of the work, not of threads that wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
