"""What a result ran on, to be written beside it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

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


def sentence() -> str:
    d = describe()
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
