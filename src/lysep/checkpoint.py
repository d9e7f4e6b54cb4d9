"""A run on disk: one file that is whole whenever one looks, and all that it takes to go on bit for bit.

The file is a safetensors file: tensors, and in its header a JSON document that says what they are. Nothing in it is
ever executed. Samples are not in it; what they were is recorded as a fingerprint, and made sure of.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lysep.atomic import new_file
from lysep.data import Batch, Source
from lysep.fingerprint import described, digest
from lysep.history import History
from lysep.network import Network

FILE = "checkpoint.safetensors"
_FORMAT, _VERSION = "lysep checkpoint", 1


def identity(
    model: nn.Module, network: Network, source: Source, validation: Batch | None, options: Mapping[str, object]
) -> dict[str, str]:
    """What decides a run's result, by name, in words to compare and to show."""
    found = {"model": " ".join(str(model).split()), "dtype": str(network.dtype)} | source.fingerprint()
    if validation is not None:
        bits = digest(values for values in validation if values is not None)
        found["validation"] = f"{len(validation.X)} samples (digest {bits})"
    return found | {name: described(option) for name, option in options.items()}


class CheckpointError(ValueError):
    """The checkpoint cannot be used for this run; the message says why and what to do."""


class Checkpoint:
    """The checkpoint of one run, in a directory of its own. One that has another identity is refused."""

    def __init__(self, directory: str | PathLike[str], every: float, identity: Mapping[str, str]) -> None:
        if not isinstance(directory, str | PathLike):
            raise ValueError(f"checkpoint={directory!r} must be the path of a directory, or None.")
        self.path = Path(directory) / FILE
        self._every, self._identity = every, dict(identity)
        self._marked: tuple[Mapping[str, Any], History, int] | None = None
        self._written_at = -math.inf
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for draft in self.path.parent.glob(f".{FILE}.*"):  # of a process that was killed while it wrote
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise OSError(error.errno, f"checkpoint={str(directory)!r} is no usable directory: {error}") from error

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """What was marked when the file was written; None where there is no file yet."""
        if not self.path.exists():
            return None
        identity, content = read(self.path, device)
        self._refuse_others(identity)
        self._written_at = time.perf_counter()
        return content

    def mark(self, content: Mapping[str, Any], history: History) -> None:
        """A point to go on from. It is written if the last one was long enough ago; otherwise it waits for `flush`."""
        self._marked = content, history, len(history)
        if time.perf_counter() - self._written_at >= self._every:
            self.flush()

    def flush(self) -> None:
        """Write what was marked last, if it is not there already; whole or not at all."""
        if self._marked is None:
            return
        content, history, sweeps = self._marked
        tensors: dict[str, Tensor] = {}
        content = {**content, "history": _columns(history, sweeps)}
        document = {"identity": self._identity, "content": pack(content, tensors, "the run")}
        data = save(tensors, _sealed(json.dumps(document), tensors))
        try:
            with new_file(self.path) as draft:
                draft.write_bytes(data)
        except OSError as error:
            raise OSError(
                error.errno,
                f"the checkpoint {self.path} could not be written: {error.strerror or error}. The model is as it was, "
                "and so is the checkpoint written before, if there was one. Make room, and the same call continues.",
            ) from error
        self._marked, self._written_at = None, time.perf_counter()

    def _refuse_others(self, identity: Mapping[str, str]) -> None:
        names = [name for name in {**identity, **self._identity} if identity.get(name) != self._identity.get(name)]
        if names:
            told = (f"{name} was {identity.get(name)}, but is {self._identity.get(name)}" for name in names)
            raise CheckpointError(
                f"{self.path} belongs to another run: {'; '.join(told)}. Pass what it was begun with to continue it, "
                "or another directory, or delete the file, to begin anew."
            )


# -- the file ----------------------------------------------------------------------------------------------------------


def _sealed(document: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {"format": _FORMAT, "version": str(_VERSION), "document": document, "seal": _seal(document, tensors)}


def _seal(document: str, tensors: Mapping[str, Tensor]) -> str:
    said = hashlib.blake2b(document.encode(), digest_size=8).hexdigest()
    return f"{said} {digest(tensors[name] for name in sorted(tensors))}"


def read(path: Path, device: torch.device) -> tuple[dict[str, str], dict[str, Any]]:
    """Whose checkpoint it is, and what it holds; tensors that were not on the CPU on `device`."""
    try:
        with safe_open(path, framework="pt") as file:
            sealed = file.metadata() or {}
            _refuse_formats(path, sealed)
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  (not a mapping)
    except SafetensorError as error:
        raise _damaged(path, error) from error
    if sealed.get("seal") != _seal(sealed.get("document", ""), tensors):
        raise _damaged(path, "its contents do not match its seal")
    document = json.loads(sealed["document"])
    return document["identity"], unpack(document["content"], tensors, device)


def _refuse_formats(path: Path, sealed: Mapping[str, str]) -> None:
    if sealed.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of lysep. Move it away, or use another directory.")
    if sealed.get("version") != str(_VERSION):
        raise CheckpointError(
            f"{path} has format {sealed.get('version')}, but this version of lysep reads format {_VERSION}. "
            "Continue it with the version that wrote it, or use another directory."
        )


def _damaged(path: Path, why: object) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged, or no checkpoint of lysep ({why}). Put back a copy, or delete it to begin anew."
    )


# -- what is in it -----------------------------------------------------------------------------------------------------


def pack(value: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """A tree of dictionaries, lists, tensors and plain values as JSON; its tensors are added to `tensors`.

    A tensor goes with its strides: sums and products of equal numbers that lie otherwise may differ in the last digit.
    """
    if isinstance(value, Tensor):
        value = value.detach()
        reach = sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
        span = reach + 1 if value.numel() else 0
        name = str(len(tensors))
        tensors[name] = value.as_strided((span,), (1,)).to("cpu", copy=True)
        return {"tensor": name, "size": list(value.shape), "stride": list(value.stride()), "on": value.device.type}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise CheckpointError(f"{place} cannot be saved: it has keys that are no strings.")
        return {"entries": {key: pack(item, tensors, f"{key!r} of {place}") for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return [pack(item, tensors, f"an entry of {place}") for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float):
        return value  # JSON as Python writes it: floats to the last bit, NaN and infinities too
    raise CheckpointError(
        f"{place} cannot be saved: it is a {type(value).__name__}. Use tensors, numbers, strings, lists, dictionaries."
    )


def unpack(packed: Any, tensors: Mapping[str, Tensor], device: torch.device) -> Any:
    """The tree again, every tensor as it lay in memory; those that were not on the CPU on `device`."""
    if isinstance(packed, list):
        return [unpack(item, tensors, device) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if "entries" in packed:
        return {key: unpack(item, tensors, device) for key, item in packed["entries"].items()}
    tensor = tensors[packed["tensor"]]
    return (tensor if packed["on"] == "cpu" else tensor.to(device)).as_strided(packed["size"], packed["stride"])


def _columns(history: History, sweeps: int) -> dict[str, Tensor]:
    """The first so many rows; integers stay integers."""
    columns = {}
    for name in history:
        values = history[name][:sweeps]
        whole = all(isinstance(value, int) for value in values)
        columns[name] = torch.tensor(values, dtype=torch.int64 if whole else torch.float64)
    return columns


def append_columns(history: History, columns: Mapping[str, Tensor]) -> None:
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        history.append(dict(zip(columns, values, strict=True)))
