"""The four raw files of MNIST: what they are called, what shape they have, and the checksums that make them MNIST."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class RawFile(NamedTuple):
    """A file in the idx format: two zeros, 8 for unsigned bytes, number of dimensions, each dimension, the bytes."""

    name: str
    md5: str
    shape: tuple[int, ...]

    @property
    def header(self) -> bytes:
        return bytes([0, 0, 8, len(self.shape)]) + b"".join(n.to_bytes(4, "big") for n in self.shape)

    @property
    def size(self) -> int:
        return len(self.header) + math.prod(self.shape)

    def checked(self, content: bytes, where: str) -> bytes:
        """The file's raw content, of `content` that may be gzipped. Refused is whatever is not MNIST's to the byte."""
        raw = _unzipped(content, self.size, where)
        found = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if found != self.md5:
            raise OSError(f"{where} is not MNIST's: the MD5 of its content is {found}, not {self.md5}.")
        return raw

    def values(self, raw: bytes) -> Tensor:
        """The bytes of checked content, in their shape."""
        return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=len(self.header)).reshape(self.shape).copy())


FILES = {
    "train_images": RawFile("train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", (60_000, 28, 28)),
    "train_labels": RawFile("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", (60_000,)),
    "test_images": RawFile("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", (10_000, 28, 28)),
    "test_labels": RawFile("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", (10_000,)),
}


def _unzipped(content: bytes, size: int, where: str) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        with gzip.open(io.BytesIO(content)) as file:
            return file.read(size + 1)  # no more than shows that it is too long
    except (EOFError, OSError, zlib.error) as error:
        raise OSError(f"{where} is a damaged gzip file: {error}") from error
