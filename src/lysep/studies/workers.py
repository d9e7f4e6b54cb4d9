"""Runs in several processes: what they cost, how far they are, and an end that loses at most the runs in hand."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from tqdm import tqdm

from lysep.studies.execute import ITERATIONS_PER_STEP, RunInterruptedError, execute
from lysep.studies.runs import Specification, Store

_LOOK = 0.5  # seconds between two looks at how far the workers are


@dataclass(frozen=True)
class Job:
    """A run to do, and the seconds that it is expected to take."""

    specification: Specification
    cost: float


@dataclass
class Tally:
    finished: int = 0
    failed: int = 0
    left_out: int = 0  # would not have ended in time


class Workers:
    """A pool of processes of one thread each. Leaving the `with` block ends them, in the middle of a run if need be."""

    def __init__(self, count: int, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # a forked PyTorch may hang
        self._count = count
        self._progress, self._stop = context.Value("d", 0.0), context.Event()
        self._pool = ProcessPoolExecutor(
            count, mp_context=context, initializer=_begin, initargs=(self._progress, self._stop, device)
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def seconds_per_sweep(self, specifications: Sequence[Specification]) -> list[float]:
        """Measured by a few sweeps each, in as many processes as will work later."""
        return list(self._pool.map(_probe, map(dict, specifications)))

    def run(self, jobs: Iterable[Job], store: Store, title: str, deadline: float | None = None) -> Tally:
        """Do the jobs in their order and save their runs. None is begun that is not expected to end by the deadline."""
        waiting, tally = list(jobs), Tally()
        total, running = sum(job.cost for job in waiting), set[Future[bool]]()
        if not waiting:
            return tally
        before = self._progress.value
        with _bar(title, total) as bar:
            while waiting or running:
                while waiting and len(running) < self._count:
                    job = waiting.pop(0)
                    if deadline is not None and time.monotonic() + job.cost > deadline:
                        tally.left_out += 1
                        continue
                    running.add(self._pool.submit(_run, dict(job.specification), str(store.folder), job.cost))
                done, running = wait(running, timeout=_LOOK, return_when=FIRST_COMPLETED)
                for future in done:
                    tally.finished += 1
                    tally.failed += not _answer(future)
                bar.set_postfix_str(f"{tally.finished} runs done, {len(running) + len(waiting)} to do", refresh=False)
                bar.update(min(self._progress.value - before, total) - bar.n)
        return tally


def _answer(future: Future[bool]) -> bool:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise OSError(
            "a worker process died, for want of memory perhaps. What is finished is kept: give the command again, "
            "with fewer --jobs if need be."
        ) from error


def _bar(title: str, total: float) -> tqdm[Any]:
    return tqdm(
        total=total,
        desc=title,
        smoothing=0.0,
        mininterval=_LOOK if sys.stderr.isatty() else 30.0,
        bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}",
    )


# What follows runs in the workers.

_here: dict[str, Any] = {}


def _begin(progress: Any, stop: Any, device: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    torch.set_num_threads(1)
    _here.update(progress=progress, stop=stop, device=device)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed cannot say stop."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(specification: Mapping[str, Any], folder: str, cost: float) -> bool:
    """Whether the run succeeded. RunInterruptedError, it is not saved."""
    told = 0.0

    def tell(share: float) -> None:
        nonlocal told
        with _here["progress"].get_lock():
            _here["progress"].value += cost * (share - told)
        told = share

    def watch(sweeps: int) -> None:
        if _here["stop"].is_set():
            raise RunInterruptedError
        tell(sweeps / specification["sweeps"])

    try:
        run = execute(specification, watch, _here["device"])
    except RunInterruptedError:
        return False
    Store(folder).save(run)
    tell(1.0)
    return run.ok


def _probe(specification: dict[str, Any]) -> float:
    steps = 5 if ITERATIONS_PER_STEP.get(specification["method"], 1) == 1 else 2
    sweeps = steps * ITERATIONS_PER_STEP.get(specification["method"], 1)

    def watch(_: int) -> None:
        if _here["stop"].is_set():
            raise RunInterruptedError

    try:
        run = execute(specification | {"sweeps": sweeps}, watch, _here["device"])
    except RunInterruptedError:
        return 0.0
    seconds, at = run.column("seconds"), run.column("sweep")
    if len(at) < 2:  # it failed at once: so will the run
        return 1e-6
    return (seconds[-1] - seconds[0]) / (at[-1] - at[0])
